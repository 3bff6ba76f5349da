"""`vlmgym train`: train a Qwen-VL on games."""

from __future__ import annotations

from collections.abc import Sequence

from vlmgym.errors import importing
from vlmgym.training.config import read_config


def run_train(args: Sequence[str]) -> None:
    """Train with the options of a command line."""
    config = read_config(args)
    with importing("vlmgym train", "train"):
        from vlmgym.training.train import run_training
    run_training(config, args)
