"""What keeps training and measuring apart: streams of chance, and rows of a user's table that are held out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.task import Task

FIRST_HELD_OUT = 1_000_000
"""First seed of held-out episodes, whatever the game."""
COLD_START = 2**32
"""Added to a run's seed for the positions of its cold start; those of reinforcement learning have the seed itself."""
HELD_OUT = 0x68656C64
"""Likewise for positions that are measured on."""
LOOKED_AT = 0x6C6F6F6B
"""Likewise for positions that only decide whether the cold start has taught enough."""


class Split(NamedTuple):
    """The seeds of questions of which there are only so many.

    Attributes:
        held_out: Seeds of those that are measured on, from `FIRST_HELD_OUT` on.
        training: Seeds of the others.
    """

    held_out: range
    training: range


@lru_cache(maxsize=64)
def split_of(game: Game[Any, Any], share: float) -> Split | None:
    """The split of a task's questions; None: they are generated, and no two seeds need ask the same.

    Of N questions those are held out that the first N x share seeds from 1,000,000 on ask, so that
    `vlmgym eval --seed 1000000` asks them, too. Which these are follows from N and the order of the rows alone.

    Args:
        game: The game.
        share: Of the questions that are held out, between 0 and 1.

    Raises:
        UsageError: On one side there is no question, or the data cannot be opened.
    """
    count = game.question_count if isinstance(game, Task) else None
    if count is None:
        return None
    middle, end = FIRST_HELD_OUT + int(count * share), FIRST_HELD_OUT + count
    split = Split(_without_bad_end(game, FIRST_HELD_OUT, middle), _without_bad_end(game, middle, end))
    if not (split.held_out and split.training):
        raise UsageError(
            f"{game.name} has {count:,} questions, of which {share:g} cannot be held out: bring more, or set "
            "held_out of the states"
        )
    return split


def _without_bad_end(game: Game[Any, Any], first: int, end: int) -> range:
    """Seeds without the last ones whose rows are bad: they ask the row after, which is of the other side."""
    while end > first and game.start_at(end - 1, np.random.default_rng(0)).skipped:
        end -= 1
    return range(first, end)


def check_held_out(games: Iterable[Game[Any, Any]], share: float, count: int, option: str) -> None:
    """Refuse to measure on more questions than are held out.

    Args:
        games: What is measured.
        share: Of the questions that are held out.
        count: Questions that are wanted of each game.
        option: Where the count comes from, for the message.

    Raises:
        UsageError: There are fewer.
    """
    for game in games:
        split = split_of(game, share)
        if split is not None and len(split.held_out) < count:
            there, some = len(split.held_out) + len(split.training), len(split.held_out)
            raise UsageError(
                f"of the {there:,} questions of {game.name} {some:,} are held out, and {option} asks for {count:,}: "
                f"set it lower, or held_out of the states higher than {share:g}"
            )
