"""Lights out: presses, smallest solutions and the score."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.games.puzzles import RNG, oracle_turns
from vlmgym import make_game
from vlmgym.errors import StateError, UsageError
from vlmgym.sandbox.games.lightsout.game import LightsOut, LightsOutConfig, LightsOutState
from vlmgym.sandbox.games.lightsout.solver import fewest_presses


def switched(lit: int, rows: int, columns: int, presses: tuple[int, ...]) -> int:
    """Lamps after presses, on a board with a border."""
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
    for presses in subsets:  # by size
        fewest.setdefault(switched(0, rows, columns, presses), len(presses))
    for lit in range(2 ** len(cells)):
        found = fewest_presses(lit, rows, columns)
        assert (None if found is None else found.bit_count()) == fewest.get(lit)
        if found is not None:
            assert switched(lit, rows, columns, tuple(cell for cell in cells if found >> cell & 1)) == 0


@given(st.integers(2, 7), st.integers(2, 7), st.integers(0, 2**49 - 1), st.data())
@settings(max_examples=50)
def test_a_press_switches_the_lamp_and_its_neighbours(rows: int, columns: int, lit: int, data: st.DataObject) -> None:
    game = LightsOut(LightsOutConfig(rows=rows, columns=columns, presses=1))
    lit %= 1 << rows * columns
    cell = data.draw(st.integers(0, rows * columns - 1))
    if fewest_presses(lit, rows, columns):
        after = game.step(LightsOutState(lit, 1), divmod(cell, columns), RNG).state
        assert after.lit == switched(lit, rows, columns, (cell,))


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_the_oracle_needs_the_fewest_presses(level: int) -> None:
    game = make_game("lightsout", reasoning=level)
    for seed in range(10):
        state = game.start(np.random.default_rng(seed))
        assert 1 <= oracle_turns(game, state) == state.par <= game.config.presses


def test_the_score_is_the_share_of_presses_and_never_negative() -> None:
    game = LightsOut(LightsOutConfig(rows=3, columns=3, presses=2))
    state, score = LightsOutState(switched(0, 3, 3, (0, 8)), 2), 0.0
    for press, expected in (((1, 1), 0.0), ((2, 0), 0.0), ((2, 0), 0.0), ((1, 1), 0.0), ((0, 0), 0.5), ((2, 2), 1.0)):
        step = game.step(state, press, RNG)
        state, score = step.state, score + step.reward
        assert score == pytest.approx(expected)
    assert step.terminated


def test_bad_states_and_configs() -> None:
    game = LightsOut(LightsOutConfig(rows=4, columns=4))
    for lit, par in ((1, 1), (2**16, 1), (-1, 1), (0, 0)):
        with pytest.raises(StateError):
            game.check_state(LightsOutState(lit, par))
    with pytest.raises(UsageError, match="presses must be at most rows x columns = 4"):
        make_game("lightsout", rows=2, columns=2, presses=5)
