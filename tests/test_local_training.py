"""Training in one process with the newest transformers; tests/in_training has the other tests."""

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
ARGS = ("-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "--tb=short")


def test_training_with_transformers_5() -> None:
    """vLLM's environment has it; what else training needs is taken from the environment for training."""
    runs = "tests/in_training/test_runs.py::test_a_"
    tests = [
        "tests/in_training/test_actor.py",
        *(f"{runs}way_to_train[{way}]" for way in ("grpo, episodes", "ppo, tokens")),
    ]
    tests.append(f"{runs}run_that_goes_on_is_the_run_that_was_never_stopped[lora]")
    said = run_python("-c", WITH_TRANSFORMERS_5, run_training("-c", PURELIB).strip(), *ARGS[2:], *tests)
    assert "skipped" not in said
