"""`vlmgym train`: train a Qwen-VL on games."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlmgym.errors import importing
from vlmgym.training.config import parse_known, read_config


def run_train(args: Sequence[str]) -> None:
    """Train with the options of a command line."""
    resume = parse_known(args).resume
    config = read_config(args) if resume is None else None
    with importing("vlmgym train", "train"):
        from vlmgym.training.run import TrainingRun
        from vlmgym.training.train import run_training
    if config is None:
        run_training(*TrainingRun.reopen(Path(resume), args))
    else:
        run_training(TrainingRun.new(config), config)
