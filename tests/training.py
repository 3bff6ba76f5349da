"""Run Python in the training environment, which `bash setup.sh --train` creates."""

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
"""Environment variables of tests: work offline, and do not let Ray lower the priority of its workers."""


def training_python() -> Path:
    """Return the Python with torch, transformers and peft; without it, skip the test, or fail it in CI."""
    if not (ENVIRONMENT / ".vlmgym-setup").exists():
        lacking(f"there is no finished {ENVIRONMENT.name}: run bash setup.sh --train")
    return ENVIRONMENT / "bin" / "python"


def easyr1_python() -> Path:
    """Return the Python with EasyR1; without it, skip the test, even in CI, which may have no access to GitHub."""
    python = training_python()
    if not _has_easyr1(python):
        pytest.skip("EasyR1 is not installed: run bash setup.sh --train with access to GitHub")
    return python


def run_training(*args: str, timeout: float = 300.0, **variables: str) -> str:
    """Run a module or script with `training_python`, in the project's folder; return its standard output."""
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
