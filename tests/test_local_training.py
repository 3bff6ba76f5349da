"""Training on one machine: its script, and the newest transformers; tests/in_training has the other tests."""

from __future__ import annotations

import subprocess

from tests.serving import run_python
from tests.training import ROOT, run_training, training_python

PURELIB = "import sysconfig; print(sysconfig.get_path('purelib'))"
WITH_TRANSFORMERS_5 = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
import transformers
assert transformers.__version__.startswith("5."), transformers.__version__
runpy.run_module("pytest", run_name="__main__")
"""
ARGS = ("--noconftest", "-p", "tests.in_training.conftest", "-q", "-p", "no:cacheprovider", "-o")


def test_training_with_transformers_5() -> None:
    """`.venv-serve` has transformers 5; all other packages come from `.venv-train`."""
    folder = "tests/in_training"
    tests = [
        f"{folder}/test_actor.py",
        f"{folder}/test_runs.py::test_variant_trains_and_writes_its_files[ppo, tokens]",
        f"{folder}/test_resuming.py::test_resumed_runs_equal_uninterrupted_ones[lora, bfloat16]",
    ]
    purelib = run_training("-c", PURELIB).strip()
    output = run_python("-c", WITH_TRANSFORMERS_5, purelib, *ARGS, "filterwarnings=default", "--tb=short", *tests)
    assert "skipped" not in output


def test_the_script_shows_the_demo_unless_another_preset_or_model_is_given() -> None:
    training_python()  # skips the test without it

    def help_of(*args: str) -> str:
        command = ["bash", "training/scripts/local_2048.sh", *args, "--help"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "Steps of reinforcement learning. (default: 60)" in help_of()
    assert "Steps of reinforcement learning. (default: 100)" in help_of("--preset", "tiny")
