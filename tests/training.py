"""The environment for training that `bash setup.sh --train` makes."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.needed import lacking

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-train"
VARIABLES = {"HF_HUB_OFFLINE": "1", "RAY_worker_niceness": "0"}
"""Of tests: without them Ray lets all other programs go first, and tests wait for what is far away."""


def training_python() -> Path:
    """The Python that has torch, transformers and peft; without it the test is skipped, or fails where CI runs."""
    if not (ENVIRONMENT / ".vlmgym-setup").exists():
        lacking(f"there is no finished {ENVIRONMENT.name}: run bash setup.sh --train")
    return ENVIRONMENT / "bin" / "python"


def easyr1_python() -> Path:
    """The Python that has EasyR1, too; without it the test is skipped, also where CI runs: it may have no network."""
    python = training_python()
    if not _has_easyr1(python):
        pytest.skip("EasyR1 is not installed: run bash setup.sh --train where GitHub answers")
    return python


def run_training(*args: str, timeout: float = 300.0, **variables: str) -> str:
    """What a module or script, run by that Python from the project's folder, writes to standard output."""
    command = [str(training_python()), *args]
    environment = {**os.environ, **VARIABLES, **variables}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@cache
def _has_easyr1(python: Path) -> bool:
    return subprocess.run([python, "-c", "import verl"], capture_output=True, timeout=60, check=False).returncode == 0
