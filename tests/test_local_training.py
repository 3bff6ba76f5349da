"""Training in one process: files of tests that need torch, each run by the Python that has it."""

from __future__ import annotations

import pytest

from tests.training import run_training

ARGS = ("-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "--tb=short")


def run_tests(file: str) -> None:
    """Run `tests/in_training/<file>.py`; what fails there fails here, with the end of what it said."""
    run_training(*ARGS, f"tests/in_training/{file}.py", timeout=1200.0)


def test_the_model_that_is_trained() -> None:
    run_tests("actor")


def test_what_is_learned_from_responses() -> None:
    run_tests("losses")


def test_what_is_drawn_ahead() -> None:
    run_tests("drawing_ahead")


def test_runs_of_a_few_steps() -> None:
    run_tests("runs")


@pytest.mark.slow
def test_a_tiny_model_learns() -> None:
    run_tests("learning")
