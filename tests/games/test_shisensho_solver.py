"""The solver of Shisen-Sho: it clears boards, follows its own plans, and is right about what cannot be cleared."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.sandbox.core.coordinates import Pair
from vlmgym.sandbox.games.shisensho.game import Board, ShisenSho, ShisenShoState
from vlmgym.sandbox.games.shisensho.solver import NODE_BUDGET, best_move, plan
from vlmgym.sandbox.games.tiles.names import EMPTY

RNG = np.random.default_rng(0)  # no step of this game takes chance


def game_of(**overrides: Any) -> ShisenSho:
    game = make_game("shisensho", **overrides)
    assert isinstance(game, ShisenSho)
    return game


def played_by_the_oracle(game: ShisenSho, state: ShisenShoState) -> tuple[list[Pair], ShisenShoState]:
    """The moves of `best_action`, each asked for anew, and where they end."""
    moves = []
    while (action := game.best_action(state)) is not None:
        moves.append(action)
        state = game.step(state, action, RNG).state
    return moves, state


def tiles_left(board: Board) -> int:
    return sum(tile != EMPTY for row in board for tile in row)


def fewest_left(game: ShisenSho, state: ShisenShoState, seen: dict[Board, int]) -> int:
    """The fewest tiles that any play leaves, by trying all of it."""
    if state.board not in seen:
        after = (game.step(state, action, RNG).state for action in game.legal_actions(state) if action[:2] < action[2:])
        seen[state.board] = min((fewest_left(game, one, seen) for one in after), default=tiles_left(state.board))
    return seen[state.board]


@st.composite
def positions(draw: st.DrawFn) -> tuple[ShisenSho, ShisenShoState]:
    """Small positions, mostly not to be cleared, also with an odd number of a kind or more than `copies`."""
    rows, columns = draw(st.sampled_from([(2, 4), (3, 4), (4, 3), (2, 6), (4, 4)]))
    tile = st.sampled_from([EMPTY, "red circle", "blue square", "green star", "yellow heart"])
    board = tuple(tuple(draw(tile) for _ in range(columns)) for _ in range(rows))
    return game_of(rows=rows, columns=columns, turns=draw(st.integers(0, 2))), ShisenShoState(board)


@settings(max_examples=150)
@given(positions())
def test_no_play_leaves_fewer_tiles(position: tuple[ShisenSho, ShisenShoState]) -> None:
    game, state = position
    found = plan(state.board, game.config.turns)
    assert found.tiles_left == fewest_left(game, state, {})
    for action in found.moves:
        state = game.step(state, action, RNG).state
    assert tiles_left(state.board) == found.tiles_left
    assert game.ended(state) is not None


@settings(max_examples=60)
@given(positions())
def test_it_has_a_legal_move_whenever_there_is_one_whatever_the_budget(
    position: tuple[ShisenSho, ShisenShoState],
) -> None:
    game, state = position
    legal = game.legal_actions(state)
    for budget in (1, 2, NODE_BUDGET):
        move = best_move(state.board, game.config.turns, budget)
        assert move in legal if legal else move is None
    assert game.best_action(state) == best_move(state.board, game.config.turns)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"copies": 2},
        {"rows": 8, "columns": 8},
        {"rows": 8, "columns": 8, "copies": 2},
        {"rows": 6, "columns": 5},
        {"turns": 0},
        {"turns": 4},
    ],
)
def test_it_clears_solvable_boards_by_the_plan_it_made_at_the_start(overrides: dict[str, int]) -> None:
    game = game_of(**overrides)
    for seed in range(8):
        state = game.start(np.random.default_rng(seed))
        found = plan(state.board, game.config.turns)
        moves, end = played_by_the_oracle(game, state)
        assert found.tiles_left == 0
        assert tuple(moves) == found.moves
        assert game.ended(end) == "cleared"


def test_later_positions_of_a_plan_take_no_more_nodes() -> None:
    game = game_of(rows=8, columns=8)
    searched = 0
    for seed in range(3):
        state = game.start(np.random.default_rng(seed))
        nodes = [plan(state.board, 2).nodes]
        for action in plan(state.board, 2).moves:
            state = game.step(state, action, RNG).state
            nodes.append(plan(state.board, 2).nodes)
        assert nodes == sorted(nodes, reverse=True)
        assert nodes[-1] == 0
        searched += nodes[0]
    assert searched > 0


def test_with_two_copies_there_is_nothing_to_search() -> None:
    game = game_of(rows=8, columns=8, copies=2, solvable=False)
    for seed in range(5):
        assert plan(game.start(np.random.default_rng(seed)).board, 2).nodes == 0


def test_the_budget_bounds_each_search() -> None:
    game = game_of(rows=8, columns=8)
    boards = [game.start(np.random.default_rng(seed)).board for seed in range(10)]
    hardest = max(boards, key=lambda board: plan(board, 2).nodes)
    enough = plan(hardest, 2).nodes
    assert enough > 20
    assert plan(hardest, 2, enough) == plan(hardest, 2)
    short = plan(hardest, 2, budget=3)
    assert short.moves
    assert short.nodes <= 2 * 3 * len(short.moves)


def test_the_choice_is_the_same_in_another_process() -> None:
    """Also with another hash seed, and whatever was asked before."""
    program = (
        "import numpy as np\nfrom vlmgym import make_game\ngame = make_game('shisensho', rows=8, columns=8)\n"
        "state = game.start(np.random.default_rng(7))\nmoves = []\n"
        "while game.ended(state) is None:\n"
        "    moves.append(game.best_action(state))\n    state = game.step(state, moves[-1], None).state\n"
        "print(moves)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    game = game_of(rows=8, columns=8)
    moves, _ = played_by_the_oracle(game, game.start(np.random.default_rng(7)))
    assert run.stdout.splitlines()[-1] == str(moves)
