"""Expectimax for 2048: it finds the same values as a recursive reference, and plays well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.sandbox.games import game2048
from vlmgym.sandbox.games.game2048 import Board, State2048, slide

SMALL_BUDGET = 20_000


@st.composite
def boards(draw: st.DrawFn) -> Board:
    rows, columns = draw(st.integers(3, 8)), draw(st.integers(3, 8))
    exponents = st.lists(st.integers(0, 7), min_size=columns, max_size=columns)
    grid = draw(st.lists(exponents, min_size=rows, max_size=rows))
    return tuple(tuple(1 << e if e else 0 for e in row) for row in grid)


def exponents_of(*several: Board) -> game2048.Boards:
    boards = [[[max(0, tile.bit_length() - 1) for tile in row] for row in board] for board in several]
    return np.stack([np.array(board, np.uint8) for board in boards], axis=-1)


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
            values.append(float(game2048.heuristic_values(exponents_of(after))[0]))
        else:
            empty = [(r, c) for r, row in enumerate(after) for c, tile in enumerate(row) if tile == 0]
            mean = 0.0
            for r, c in empty:
                for tile, probability in ((2, 1 - four), (4, four)):
                    best = max(reference_values(replaced(after, r, c, tile), four, depth - 1))
                    mean += probability * max(best, 0.0) / len(empty)
            values.append(mean)
    return values


@given(boards())
def test_slide_all_matches_slide(board: Board) -> None:
    moved = game2048.slide_all(exponents_of(board, board[::-1]))
    for action in range(4):
        np.testing.assert_array_equal(moved[:, :, action, 0], exponents_of(slide(board, action)[0])[:, :, 0])
        np.testing.assert_array_equal(moved[:, :, action, 1], exponents_of(slide(board[::-1], action)[0])[:, :, 0])


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=9, max_size=9), st.sampled_from([0.0, 0.1, 1.0]))
def test_values_match_the_reference(exponents: list[int], four: float) -> None:
    tiles = [1 << e if e else 0 for e in exponents]
    board = tuple(tuple(tiles[i : i + 3]) for i in (0, 3, 6))
    found = game2048.search(board, four, budget=1000)
    assert found.values == pytest.approx(reference_values(board, four, max(1, found.depth)), rel=1e-12)
    assert found.action == (None if max(found.values) < 0 else found.values.index(max(found.values)))


@settings(max_examples=40)
@given(boards())
def test_action_is_legal_or_none_at_the_end(board: Board) -> None:
    game, state = make_game("2048", rows=len(board), columns=len(board[0])), State2048(board)
    legal = game.legal_actions(state)
    found = game2048.search(board, budget=SMALL_BUDGET)
    assert found.action in legal if legal else found.action is None
    assert (found.nodes > 0) == bool(legal)


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (4, 4), (8, 8), (3, 8)])
def test_budget_bounds_the_tree(rows: int, columns: int) -> None:
    game, rng = make_game("2048", rows=rows, columns=columns), np.random.default_rng(0)
    state = game.start(rng)
    for _ in range(10):
        found = game2048.search(state.board)
        assert 1 <= found.depth <= game2048.MAX_DEPTH
        assert found.nodes * rows * columns <= 2 * game2048.BUDGET
        state = game.step(state, found.action, rng).state
        if game.ended(state) is not None:
            break


def test_goal_within_reach_is_taken() -> None:
    board = ((2, 4, 2, 4), (16, 2, 8, 2), (16, 8, 2, 8), (2, 4, 0, 4))
    assert game2048.search(board, goal=32).action in (0, 2)
    assert game2048.search(board, goal=16).action is None


def test_expectimax_reaches_512() -> None:
    """Even with a fraction of its budget, expectimax reaches 512; random play almost never does."""
    game, rng = make_game("2048"), np.random.default_rng(0)
    state = game.start(rng)
    for _ in range(400):
        action = game2048.search(state.board, budget=SMALL_BUDGET).action
        assert action is not None
        state = game.step(state, action, rng).state
    assert max(map(max, state.board)) >= 512
