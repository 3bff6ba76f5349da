"""Run Python in the training environments, which `bash setup.sh --train` and `--easyr1` create."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.needed import lacking

ROOT = Path(__file__).resolve().parents[1]
TRAIN, EASYR1 = ".venv-train", ".venv-easyr1"
VARIABLES = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
"""Environment variables of tests: work offline, use one thread, because those of tiny models mostly wait for each
other, and do not let Ray lower the priority of its workers."""


def python_of(environment: str) -> Path:
    """Return the Python of `TRAIN` or `EASYR1`; if it is not set up, skip the test, or fail it in CI."""
    folder = ROOT / environment
    if not (folder / ".vlmgym-setup").exists():
        lacking(f"there is no finished {environment}: run bash setup.sh {environment.replace('.venv-', '--')}")
    return folder / "bin" / "python"


def training_python() -> Path:
    """Return the Python with torch, transformers 5, peft, TRL and vLLM; without it, skip the test, or fail it in CI."""
    return python_of(TRAIN)


def easyr1_python() -> Path:
    """Return the Python with EasyR1; without it, skip the test, even in CI, which may have no access to GitHub."""
    python = python_of(EASYR1)
    if not _has_easyr1(python):
        pytest.skip("EasyR1 is not installed: run bash setup.sh --easyr1 with access to GitHub")
    return python


def run_training(*args: str, environment: str = TRAIN, timeout: float = 300.0, **variables: str) -> str:
    """Run a module or script with an environment's Python, in the project's folder; return its standard output."""
    command = [str(python_of(environment)), *args]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **VARIABLES, **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@cache
def _has_easyr1(python: Path) -> bool:
    return subprocess.run([python, "-c", "import verl"], capture_output=True, timeout=60, check=False).returncode == 0
