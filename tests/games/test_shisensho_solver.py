"""The solver for Shisen-Sho clears boards, follows its own plans, and is optimal where boards cannot be cleared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.sandbox.answers.cells import Pair
from vlmgym.sandbox.games.shisensho.boards import NODE_BUDGET, Board, best_move, plan
from vlmgym.sandbox.games.shisensho.game import ShisenSho, ShisenShoState
from vlmgym.sandbox.games.tiles import EMPTY

RNG = np.random.default_rng(0)  # unused, because steps of this game are deterministic


def game_of(**overrides: Any) -> ShisenSho:
    game = make_game("shisensho", **overrides)
    assert isinstance(game, ShisenSho)
    return game


def play_oracle(game: ShisenSho, state: ShisenShoState) -> tuple[list[Pair], ShisenShoState]:
    """Play `best_action` to the end; return its moves and the last state."""
    moves = []
    while (action := game.best_action(state)) is not None:
        moves.append(action)
        state = game.step(state, action, RNG).state
    return moves, state


def tiles_left(board: Board) -> int:
    return sum(tile != EMPTY for row in board for tile in row)


def fewest_left(game: ShisenSho, state: ShisenShoState, seen: dict[Board, int]) -> int:
    """Return the fewest tiles that any play leaves, by exhaustive search."""
    if state.board not in seen:
        after = (game.step(state, action, RNG).state for action in game.legal_actions(state) if action[:2] < action[2:])
        seen[state.board] = min((fewest_left(game, one, seen) for one in after), default=tiles_left(state.board))
    return seen[state.board]


@st.composite
def states(draw: st.DrawFn) -> tuple[ShisenSho, ShisenShoState]:
    """Draw small boards, mostly unsolvable; a kind may have an odd number of tiles, or more than `copies`."""
    rows, columns = draw(st.sampled_from([(2, 4), (3, 4), (4, 3), (2, 6), (4, 4)]))
    tile = st.sampled_from([EMPTY, "red circle", "blue square", "green star", "yellow heart"])
    board = tuple(tuple(draw(tile) for _ in range(columns)) for _ in range(rows))
    return game_of(rows=rows, columns=columns, turns=draw(st.integers(0, 2))), ShisenShoState(board)


@settings(max_examples=60)
@given(states())
def test_plan_leaves_the_fewest_tiles(drawn: tuple[ShisenSho, ShisenShoState]) -> None:
    game, state = drawn
    found = plan(state.board, game.config.turns)
    fewest = fewest_left(game, state, {})
    for action in found.moves:
        state = game.step(state, action, RNG).state
    assert tiles_left(state.board) == fewest
    assert game.ended(state) is not None


@settings(max_examples=60)
@given(states())
def test_best_move_is_legal_with_any_budget(drawn: tuple[ShisenSho, ShisenShoState]) -> None:
    game, state = drawn
    legal = game.legal_actions(state)
    for budget in (1, 2, NODE_BUDGET):
        move = best_move(state.board, game.config.turns, budget)
        assert move in legal if legal else move is None
    assert game.best_action(state) == best_move(state.board, game.config.turns)


@pytest.mark.parametrize(
    "overrides",
    [
        {}, {"copies": 2}, {"rows": 8, "columns": 8}, {"rows": 8, "columns": 8, "copies": 2},
        {"rows": 6, "columns": 5}, {"turns": 0}, {"turns": 4},
    ],
)  # fmt: skip
def test_oracle_clears_solvable_boards_by_its_first_plan(overrides: dict[str, int]) -> None:
    game = game_of(**overrides)
    for seed in range(3):
        state = game.start(np.random.default_rng(seed))
        found = plan(state.board, game.config.turns)
        moves, end = play_oracle(game, state)
        assert tuple(moves) == found.moves
        assert game.ended(end) == "cleared"


def test_budget_bounds_each_search() -> None:
    game = game_of(rows=8, columns=8)
    boards = [game.start(np.random.default_rng(seed)).board for seed in range(10)]
    hardest = max(boards, key=lambda board: plan(board, 2).nodes)
    enough = plan(hardest, 2).nodes
    assert enough > 20
    assert plan(hardest, 2, enough) == plan(hardest, 2)
    short = plan(hardest, 2, budget=3)
    assert short.moves
    assert short.nodes <= 2 * 3 * len(short.moves)
