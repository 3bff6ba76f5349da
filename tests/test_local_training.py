"""Training in one process: files of tests that need torch, each run by the Python that has it."""

from __future__ import annotations

import pytest

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
ARGS = ("-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "--tb=short")


def run_tests(file: str) -> None:
    """Run `tests/in_training/<file>.py`; what fails or is skipped there fails here, with the end of what it said."""
    said = run_training(*ARGS, f"tests/in_training/{file}.py", timeout=1200.0)
    assert "skipped" not in said, said


def test_the_model_that_is_trained() -> None:
    run_tests("actor")


def test_what_is_learned_from_responses() -> None:
    run_tests("losses")


def test_what_is_drawn_ahead() -> None:
    run_tests("drawing_ahead")


def test_runs_of_a_few_steps() -> None:
    run_tests("runs")


def test_live_logging_of_evaluations() -> None:
    run_tests("live_logging")


def test_training_with_transformers_5() -> None:
    """vLLM's environment has it; what else training needs is taken from the environment for training."""
    runs = "tests/in_training/runs.py::test_a_"
    tests = ["tests/in_training/actor.py", *(f"{runs}way_to_train[{way}]" for way in ("grpo, episodes", "ppo, tokens"))]
    tests.append(f"{runs}run_that_goes_on_is_the_run_that_was_never_stopped[lora]")
    said = run_python("-c", WITH_TRANSFORMERS_5, run_training("-c", PURELIB).strip(), *ARGS[2:], *tests)
    assert "skipped" not in said


@pytest.mark.slow
def test_a_tiny_model_learns() -> None:
    run_tests("learning")
