"""Packing: pieces, overlaps, turns, solutions and spellings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.games.puzzles import RNG, oracle_turns
from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.packing import Packing, PackingConfig, PackingState

CORNER = ((0, 0), (1, 0), (1, 1))
LINE = ((0, 0), (0, 1), (0, 2))
GAME = Packing(PackingConfig(rows=3, columns=3, pieces=3))
START = PackingState((CORNER, LINE, CORNER), (None, None, None))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10_000))
def test_the_oracle_fills_the_board_from_any_position(level: int, seed: int) -> None:
    game, rng = make_game("packing", reasoning=level), np.random.default_rng(seed)
    state = game.start(rng)
    assert sum(map(len, state.pieces)) == game.config.rows * game.config.columns
    assert oracle_turns(game, state) == game.config.pieces
    for _ in range(6):
        legal = game.legal_actions(state)
        if legal:
            state = game.step(state, legal[int(rng.integers(len(legal)))], rng).state
    turns = oracle_turns(game, state)
    assert turns <= game.config.pieces
    if not any(state.places):
        assert turns == game.config.pieces


def test_pieces_that_overlap_go_back_to_the_tray() -> None:
    step = GAME.step(START, (1, 0, 0), RNG)
    assert step.reward == pytest.approx(1 / 3)
    step = GAME.step(step.state, (0, 1, 0), RNG)
    assert GAME.describe(step.state).splitlines() == ["B, B, B", "A, empty, empty", "A, A, empty", "C, x., xx"]
    step = GAME.step(step.state, (0, 0, 0), RNG)
    assert step.reward == pytest.approx(-1 / 3)
    assert step.state.places == ((0, 0), None, None)
    with pytest.raises(IllegalAction, match=r"piece A is already at \(0, 0\)"):
        GAME.step(step.state, (0, 0, 0), RNG)
    with pytest.raises(IllegalAction, match=r"piece B at \(0, 1\) would not be inside the board"):
        GAME.step(step.state, (1, 0, 1), RNG)


def test_turns_are_clockwise() -> None:
    game = Packing(PackingConfig(rows=3, columns=3, pieces=3, turns=True))
    state = game.step(START, (0, 1, 1, 1), RNG).state
    assert game.describe(state).splitlines()[:3] == ["empty, empty, empty", "empty, A, A", "empty, A, empty"]
