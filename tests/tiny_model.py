"""Tiny models with random weights, whose tokenizer knows the texts of three games.

python -m tests.tiny_model KIND FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vlmgym import make_game
from vlmgym.policies.baselines import random_legal_action
from vlmgym.training.config import TinySize
from vlmgym.training.tiny_vlm import make_tiny_vlm


def make_model(kind: Any, folder: Path, size: TinySize = TinySize()) -> None:  # noqa: B008
    """Write a model of a type of transformers."""
    make_tiny_vlm(replace(size, kind=kind), folder, game_texts())


def game_texts(turns: int = 8) -> Iterator[str]:
    """Yield prompts and valid responses at all reasoning levels, from fixed random episodes."""
    for name in ("2048", "shisensho", "swap"):
        for level in range(1, 6):
            game, rng = make_game(name, reasoning=level), np.random.default_rng(level)
            state = game.start(rng)
            yield game.prompt(state)
            for _ in range(turns):
                if (action := random_legal_action(game, state, rng)) is None:
                    break
                yield game.respond(state, action)
                state = game.step(state, action, rng).state


if __name__ == "__main__":
    make_model(sys.argv[1], Path(sys.argv[2]), TinySize(tied=False))
