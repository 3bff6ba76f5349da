"""Train tiny models with EasyR1's own worker: python -m tests.easyr1_gpu.fit RUNS.json, as tests/easyr1_cpu/fit.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.easyr1_gpu.cpu import install

install()

from tests.easyr1_cpu.fit import main  # noqa: E402
from vlmgym.training.easyr1 import episodes  # noqa: E402
from vlmgym.training.easyr1.worker import VlmgymWorker  # noqa: E402

if __name__ == "__main__":
    episodes.ENGINE_STEPS = 3  # responses have up to 8 tokens, so that episodes are at different turns
    request = json.loads(Path(sys.argv[1]).read_text())
    main(request["models"], request["runs"], VlmgymWorker, "tests.easyr1_gpu.cpu.install")
