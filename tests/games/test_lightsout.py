"""Lights out: presses, smallest solutions and the score."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest

from tests.games.puzzles import RNG
from vlmgym.sandbox.games.lightsout import LightsOut, LightsOutConfig, LightsOutState, fewest_presses


def switched(lit: int, rows: int, columns: int, presses: tuple[int, ...]) -> int:
    """Return the bitmask of lit lamps after `presses`, computed on a board with a border."""
    board = np.zeros((rows + 2, columns + 2), dtype=bool)
    board[1:-1, 1:-1] = [[lit >> row * columns + column & 1 for column in range(columns)] for row in range(rows)]
    for cell in presses:
        row, column = divmod(cell, columns)
        for r, c in ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2)):
            board[row + r, column + c] ^= True
    return sum(1 << i for i, on in enumerate(board[1:-1, 1:-1].ravel()) if on)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (2, 3), (3, 3)])
def test_solutions_are_smallest(rows: int, columns: int) -> None:
    cells = range(rows * columns)
    subsets = list(chain.from_iterable(combinations(cells, count) for count in range(len(cells) + 1)))
    fewest: dict[int, int] = {}
    for presses in subsets:  # smallest first
        fewest.setdefault(switched(0, rows, columns, presses), len(presses))
    for lit in range(2 ** len(cells)):
        found = fewest_presses(lit, rows, columns)
        assert (None if found is None else found.bit_count()) == fewest.get(lit)
        if found is not None:
            assert switched(lit, rows, columns, tuple(cell for cell in cells if found >> cell & 1)) == 0


def test_the_score_is_the_share_of_presses_and_never_negative() -> None:
    game = LightsOut(LightsOutConfig(rows=3, columns=3, presses=2))
    state, score = LightsOutState(switched(0, 3, 3, (0, 8)), 2), 0.0
    for press, expected in (((1, 1), 0.0), ((2, 0), 0.0), ((2, 0), 0.0), ((1, 1), 0.0), ((0, 0), 0.5), ((2, 2), 1.0)):
        step = game.step(state, press, RNG)
        state, score = step.state, score + step.reward
        assert score == pytest.approx(expected)
    assert game.ended(state) == "all lamps are off"
