"""Mazes: one path between any two cells, fog, and the score as the completed share of the path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.games.puzzles import RNG, oracle_turns
from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.maze import HIDDEN, Maze, MazeConfig, MazeState, carve, distances


@given(st.integers(2, 12), st.integers(2, 12), st.integers(0, 10_000))
def test_one_path_connects_any_two_cells(rows: int, columns: int, seed: int) -> None:
    openings = carve(rows, columns, np.random.default_rng(seed))
    passages = sum(bin(sides).count("1") for line in openings for sides in line)
    assert passages == 2 * (rows * columns - 1)  # a connected graph with one edge fewer than cells is a tree
    assert len(distances(openings, (0, 0))) == rows * columns


def test_the_score_is_the_completed_share_of_the_path() -> None:
    game = make_game("maze", reasoning=5)
    state = game.start(np.random.default_rng(1))
    rng, score = np.random.default_rng(0), 0.0
    longest = oracle_turns(game, state)
    for _ in range(30):
        legal = game.legal_actions(state) or ()
        step = game.step(state, legal[int(rng.integers(len(legal)))], rng)
        state, score = step.state, score + step.reward
        assert score == pytest.approx(1 - oracle_turns(game, state) / longest)


def test_walls_block_moves() -> None:
    game = Maze(MazeConfig(rows=2, columns=3))
    state = MazeState(((2, 10, 8), (2, 10, 8)), (0, 1), (0, 2))
    assert game.legal_actions(state) == (1, 3)
    for action, side in ((0, "above"), (2, "below")):
        with pytest.raises(IllegalAction, match=f"there is a wall {side} the player"):
            game.step(state, action, RNG)
    assert game.ended(game.step(state, 1, RNG).state) == "the exit is reached"


def test_fog_hides_cells_and_the_exit() -> None:
    clear, foggy = (Maze(MazeConfig(rows=9, columns=9, fog=fog)) for fog in (0, 1))
    state = clear.start(np.random.default_rng(0))
    row, column = state.player
    assert not any(HIDDEN in line for line in clear.cells(state))
    for r, (line, seen) in enumerate(zip(clear.cells(state), foggy.cells(state))):
        for c, (cell, other) in enumerate(zip(line, seen)):
            assert other == (cell if max(abs(r - row), abs(c - column)) <= 1 else HIDDEN)
    assert "exit" not in foggy.describe(state)
    assert "Only cells at most 1 cell away from the player, in rows and in columns, are shown." in foggy.prompt(state)
    assert "exit" not in foggy.explain(state, foggy.legal_actions(state)[0])
    assert np.array_equal(foggy.draw(state), foggy.draw(replace(state, exit=(0, 0) if row > 4 else (8, 8))))
