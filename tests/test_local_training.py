"""Training on one machine with the newest transformers; tests/in_training has the other tests."""

from __future__ import annotations

from tests.serving import run_python
from tests.training import run_training

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
