"""Episodes in TRL, with the transformers of .venv-serve and the TRL of .venv-train."""

from __future__ import annotations

import pytest

from tests.serving import run_python
from tests.test_local_training import ARGS, PURELIB, WITH_TRANSFORMERS_5
from tests.training import run_training


@pytest.mark.slow
def test_episodes_with_transformers_5() -> None:
    purelib = run_training("-c", PURELIB).strip()
    options = ("filterwarnings=default", "--tb=short", "-m", "not slow", "tests/in_training/test_trl.py")
    assert "skipped" not in run_python("-c", WITH_TRANSFORMERS_5, purelib, *ARGS, *options)
