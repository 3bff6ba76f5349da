"""`python -m training.easyr1` without vLLM, for its checks: python -m tests.easyr1_cpu.command FILE.yaml ... --check"""

from __future__ import annotations

import sys

from tests.easyr1_cpu import vllm_stub
from training.easyr1.__main__ import main
from vlmgym.options import reporting_errors

if __name__ == "__main__":
    vllm_stub.install()
    with reporting_errors():
        main(sys.argv[1:])
