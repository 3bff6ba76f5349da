"""2048: rules (compared with gymnasium-2048), text, images, and expectimax (compared with a recursive reference)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium_2048.envs.twenty_forty_eight import TwentyFortyEightEnv
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.choice import DIRECTIONS
from vlmgym.sandbox.games import game2048
from vlmgym.sandbox.games.game2048 import Board, Game2048, State2048, slide

EMPTY: Board = ((0,) * 4,) * 4


def game_2048(**overrides: Any) -> Game2048:
    game = make_game("2048", **overrides)
    assert isinstance(game, Game2048)
    return game


@st.composite
def boards(draw: st.DrawFn, largest: int = 5) -> Board:
    """Draw boards with 3 to 8 rows and columns, often with few kinds of tile, so that merges are frequent."""
    rows, columns = draw(st.integers(3, 8)), draw(st.integers(3, 8))
    exponents = st.lists(st.integers(0, largest), min_size=columns, max_size=columns)
    grid = draw(st.lists(exponents, min_size=rows, max_size=rows))
    return tuple(tuple(1 << e if e else 0 for e in row) for row in grid)


def exponents_of(board: Board) -> NDArray[np.uint8]:
    return np.array([[tile.bit_length() - 1 if tile else 0 for tile in row] for row in board], dtype=np.uint8)


def board_of(exponents: NDArray[np.uint8]) -> Board:
    return tuple(tuple(1 << int(e) if e else 0 for e in row) for row in exponents)


# Rules ------------------------------------------------------------------------------------------------------------


@given(boards(), st.integers(0, 3))
def test_slide_matches_gymnasium_2048(board: Board, action: int) -> None:
    expected, score, changed = TwentyFortyEightEnv.apply_action(exponents_of(board), action)
    after, gained = slide(board, action)
    assert after == board_of(expected)
    assert gained == score
    assert (after != board) == changed


@given(boards(largest=3))
def test_legal_actions_match_step_and_gymnasium_2048(board: Board) -> None:
    game, state = game_2048(rows=len(board), columns=len(board[0])), State2048(board)
    legal = game.legal_actions(state)
    for action in range(4):
        rng = np.random.default_rng(0)
        if action in legal:
            game.step(state, action, rng)
        else:
            with pytest.raises(IllegalAction, match="changes nothing"):
                game.step(state, action, rng)
            assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
    if any(map(any, board)):  # the package does not terminate on an empty board, which never occurs
        assert (not legal) == TwentyFortyEightEnv.is_terminated(exponents_of(board))


@pytest.mark.parametrize("four", [0.0, 0.1, 0.5, 1.0])
def test_new_tiles_are_uniform(four: float) -> None:
    game, rng, trials = game_2048(four_probability=four), np.random.default_rng(1), 4000
    state = State2048(((2, 0, 0, 0), *EMPTY[1:]))
    counts: dict[tuple[int, int], int] = {}
    fours = 0
    for _ in range(trials):
        board = game.step(state, DIRECTIONS.index("right"), rng).state.board
        (cell,) = ((r, c) for r in range(4) for c in range(4) if board[r][c] and (r, c) != (0, 3))
        counts[cell] = counts.get(cell, 0) + 1
        fours += board[cell[0]][cell[1]] == 4
    assert len(counts) == 15
    expected = trials / 15
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 36.1  # p = 0.001 with 14 degrees of freedom
    assert abs(fours - trials * four) <= 4 * (trials * four * (1 - four)) ** 0.5


def test_goal_ends_the_game() -> None:
    game = game_2048(goal=16)
    state = State2048(((8, 8, 0, 0), *EMPTY[1:]))
    assert game.ended(state) is None
    step = game.step(state, DIRECTIONS.index("left"), np.random.default_rng(0))
    assert game.ended(step.state) == "goal reached"
    assert game.legal_actions(step.state) == ()
    assert game.best_action(step.state) is None
    assert game_2048().ended(step.state) is None


# Text -------------------------------------------------------------------------------------------------------------


def test_explanation_lists_merges_and_slides() -> None:
    game = game_2048()
    state = State2048(((4, 4, 0, 0), (0, 2, 0, 0), (0, 0, 0, 8), (0, 0, 0, 0)))
    expected = (
        "Rows: 4 4 0 0 (1) 0 2 0 0 (both) 0 0 0 8 (left) 0 0 0 0 (stuck), together 1. "
        "Columns: 4 0 0 0 (down) 4 2 0 0 (down) 0 0 0 0 (stuck) 0 0 8 0 (both), together both. I slide left."
    )
    assert game.explain(state, DIRECTIONS.index("left")) == expected


# Images ----------------------------------------------------------------------------------------------------------


def test_tiles_look_different() -> None:
    game = game_2048(size=96)
    seen = {game.draw(State2048(((1 << e if e else 0, 0, 0, 0), *EMPTY[1:]))).tobytes() for e in range(21)}
    assert len(seen) == 21


# Expectimax -------------------------------------------------------------------------------------------------------


def replaced(board: Board, row: int, column: int, tile: int) -> Board:
    line = (*board[row][:column], tile, *board[row][column + 1 :])
    return (*board[:row], line, *board[row + 1 :])


def reference_values(board: Board, four: float, depth: int) -> list[float]:
    """Return the four moves' values by recursive expectimax of this depth; -1 for a move that changes nothing."""
    values = []
    for action in range(4):
        after = slide(board, action)[0]
        if after == board:
            values.append(-1.0)
        elif depth == 1:
            values.append(float(game2048.heuristic_values(exponents_of(after)[..., np.newaxis])[0]))
        else:
            empty = [(r, c) for r, row in enumerate(after) for c, tile in enumerate(row) if tile == 0]
            mean = 0.0
            for r, c in empty:
                for tile, probability in ((2, 1 - four), (4, four)):
                    best = max(reference_values(replaced(after, r, c, tile), four, depth - 1))
                    mean += probability * max(best, 0.0) / len(empty)
            values.append(mean)
    return values


@given(st.lists(st.integers(0, 3), min_size=9, max_size=9), st.sampled_from([0.0, 0.1, 1.0]))
def test_values_match_the_reference(exponents: list[int], four: float) -> None:
    tiles = [1 << e if e else 0 for e in exponents]
    board = tuple(tuple(tiles[i : i + 3]) for i in (0, 3, 6))
    found = game2048.Search(board, four, budget=1000)
    assert found.values == pytest.approx(reference_values(board, four, max(1, found.depth)), rel=1e-12)
    assert found.action == (None if max(found.values) < 0 else found.values.index(max(found.values)))


def test_goal_within_reach_is_taken() -> None:
    board = ((2, 4, 2, 4), (16, 2, 8, 2), (16, 8, 2, 8), (2, 4, 0, 4))
    assert game2048.Search(board, goal=32).action in (0, 2)
    assert game2048.Search(board, goal=16).action is None
