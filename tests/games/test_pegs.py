"""Peg solitaire: jumps, dealt boards and the smallest number of pegs that can be left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.games.puzzles import RNG
from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.pegs import Pegs, PegsConfig, PegsState

GAME = Pegs(PegsConfig(rows=3, columns=4, pegs=6))


def fewest(board: np.ndarray) -> int:
    """Return the smallest number of pegs that jumps can leave, by trying all of them on an array."""
    left = int(board.sum())
    for row, column in np.argwhere(board):
        for down, across in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            over, to = (row + down, column + across), (row + 2 * down, column + 2 * across)
            if 0 <= to[0] < board.shape[0] and 0 <= to[1] < board.shape[1] and board[over] and not board[to]:
                after = board.copy()
                after[row, column] = after[over] = False
                after[to] = True
                left = min(left, fewest(after))
    return left


@given(st.integers(1, 2**12 - 1).filter(lambda pegs: pegs.bit_count() <= 6))
def test_the_oracle_leaves_as_few_pegs_as_possible(pegs: int) -> None:
    state = PegsState(pegs)
    least = fewest(np.array([pegs >> cell & 1 for cell in range(12)], bool).reshape(3, 4))
    while (action := GAME.best_action(state)) is not None:
        state = GAME.step(state, action, RNG).state
    assert state.pegs.bit_count() == least


def test_a_jump_removes_the_peg_in_between() -> None:
    state = PegsState(0b0000_0010_0011)  # pegs at (0, 0), (0, 1) and (1, 1)
    step = GAME.step(state, (0, 0, 0, 2), RNG)
    assert GAME.describe(step.state).splitlines()[:2] == ["empty, empty, peg, empty", "empty, peg, empty, empty"]
    assert step.reward == pytest.approx(1 / 5)
    assert GAME.ended(step.state) == "no jump is possible"
    assert GAME.ended(GAME.step(PegsState(0b11), (0, 0, 0, 2), RNG).state) == "one peg is left"
    for action, reason in (
        ((0, 2, 0, 0), r"no peg at \(0, 2\)"),
        ((0, 0, 1, 1), r"\(1, 1\) is not two cells up, right, down or left of \(0, 0\)"),
        ((0, 0, 2, 0), r"no peg to jump over at \(1, 0\)"),
        ((0, 1, 0, 3), r"no peg to jump over at \(0, 2\)"),
    ):
        with pytest.raises(IllegalAction, match=reason):
            GAME.step(state, action, RNG)
    with pytest.raises(IllegalAction, match=r"already a peg at \(0, 2\)"):
        GAME.step(PegsState(0b111), (0, 0, 0, 2), RNG)


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_a_first_jump_may_be_wrong(level: int) -> None:
    game = make_game("pegs", reasoning=level)
    for seed in range(5):
        state = game.start(np.random.default_rng(seed))
        assert state.pegs.bit_count() == game.config.pegs
        left = set()
        for action in game.legal_actions(state) or ():
            after = game.step(state, action, RNG).state
            while (best := game.best_action(after)) is not None:
                after = game.step(after, best, RNG).state
            left.add(after.pegs.bit_count())
        assert min(left) == 1 < max(left)
