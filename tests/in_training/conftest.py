"""Fixtures for training runs. They import torch late, because the core environment also loads this file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that responds with random moves."""
    from tests.in_training.tiny import make_move_model

    return make_move_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def finished(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that trains a variant, once per session, and returns the run's folder."""
    from tests.in_training.runs import QUICK, VARIANTS, main

    folders: dict[str, Path] = {}

    def run(variant: str) -> Path:
        if variant not in folders:
            folders[variant] = tmp_path_factory.mktemp("runs") / "run"
            main([*QUICK, "--model", str(model), *VARIANTS[variant], "--output-dir", str(folders[variant])])
        return folders[variant]

    return run
