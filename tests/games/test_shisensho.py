"""Shisen-Sho: rules, dealing, paths and plans (compared with exhaustive searches), and text."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.drawing.shapes import EMPTY
from vlmgym.sandbox.games.shisensho.boards import (
    Board,
    Cell,
    PathFinder,
    Solver,
    end_reason,
    legal_actions,
)
from vlmgym.sandbox.games.shisensho.game import ShisenSho, ShisenShoState

KNOWN = {
    "o": EMPTY,
    "r": "red circle",
    "b": "blue square",
    "g": "green star",
    "y": "yellow heart",
    "p": "purple circle",
}
RNG = np.random.default_rng(0)  # unused, because steps of this game are deterministic


def game_of(**overrides: Any) -> ShisenSho:
    game = make_game("shisensho", **overrides)
    assert isinstance(game, ShisenSho)
    return game


def state_of(*rows: str) -> ShisenShoState:
    """Build a state from one letter per tile, `o` for an empty cell."""
    return ShisenShoState(tuple(tuple(KNOWN[letter] for letter in row) for row in rows))


def game_for(state: ShisenShoState, **overrides: Any) -> ShisenSho:
    return game_of(**{"rows": len(state.board), "columns": len(state.board[0]), "turns": 2, **overrides})


def start(game: ShisenSho, seed: int = 0) -> ShisenShoState:
    return game.start(np.random.default_rng(seed))


def tiles_on(board: Board) -> Counter[str]:
    return Counter(tile for row in board for tile in row if tile != EMPTY)


# Moves ------------------------------------------------------------------------------------------------------------


def test_step_removes_only_two_tiles() -> None:
    state = state_of("rbgr", "bggb")
    game = game_for(state)
    step = game.step(state, (0, 3, 0, 0), RNG)
    assert step.state == state_of("obgo", "bggb")
    assert step.reward == 1.0
    assert step.info == {"tile": "red circle", "path": [[0, 3], [-1, 3], [-1, 0], [0, 0]]}
    assert json.loads(json.dumps(step.info)) == step.info
    assert game.step(state, (0, 0, 0, 3), RNG).state == step.state


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ((0, 0, 3, 0), "(3, 0) is outside the 2 x 4 board"),
        ((0, -1, 1, 0), "(0, -1) is outside the 2 x 4 board"),
        ((1, 1, 1, 1), "same cell (1, 1)"),
        ((0, 2, 0, 0), "(0, 2) is empty"),
        ((0, 2, 0, 2), "same cell (0, 2)"),
        ((0, 0, 0, 1), "red circle at (0, 0), blue square at (0, 1)"),
        ((0, 1, 1, 0), "at most 2 turns connects the blue square at (0, 1) and the one at (1, 0)"),
    ],
)
def test_illegal_actions_have_a_reason(action: Any, reason: str) -> None:
    state = state_of("rbog", "brrg")
    game = game_for(state)
    with pytest.raises(IllegalAction, match=re.escape(reason)):
        game.step(state, action, RNG)


# Dealing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solvable", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "copies", "per_kind"),
    [(6, 6, 4, [4] * 9), (6, 6, 2, [2] * 18), (6, 5, 4, [2] + [4] * 7), (2, 2, 4, [4]), (2, 3, 4, [2, 4])],
)
def test_number_of_tiles_per_kind(rows: int, columns: int, copies: int, per_kind: list[int], solvable: bool) -> None:
    game = game_of(rows=rows, columns=columns, copies=copies, solvable=solvable)
    for seed in range(5):
        state = start(game, seed)
        assert sorted(tiles_on(state.board).values()) == per_kind
        assert game.ended(state) is None


def test_only_unsolvable_deals_get_stuck() -> None:
    """With two copies, the order of removals does not matter, so any play shows whether a board can be cleared."""
    ends: dict[bool, set[str | None]] = {True: set(), False: set()}
    for solvable, seen in ends.items():
        game = game_of(copies=2, turns=2, solvable=solvable)
        for seed in range(20):
            state = start(game, seed)
            while game.ended(state) is None:
                state = game.step(state, game.legal_actions(state)[0], RNG).state
            seen.add(game.ended(state))
    assert ends == {True: {"cleared"}, False: {"cleared", "no pair can be connected"}}


# Text -------------------------------------------------------------------------------------------------------------


def test_explanation_lists_pairs_up_to_the_chosen_one() -> None:
    state = state_of("rbgro", "bggbr")
    assert game_for(state, origin=1).explain(state, (1, 1, 1, 2)) == (
        "Equal tiles and the turns of the path between them: blue square, (2, 1) (2, 4) 2; "
        "green star, (1, 3) (2, 2) none; green star, (1, 3) (2, 3) 0; green star, (2, 2) (2, 3) 0. "
        "I choose green star, (2, 2) (2, 3)."
    )


def test_demonstration_of_an_illegal_pair_lists_all_pairs_before_guessing() -> None:
    state = state_of("rbgro", "bggbr")
    response = game_for(state).respond(state, (0, 0, 0, 0))
    legal = [pair for pair in game_for(state).legal_actions(state) if pair[:2] < pair[2:]]
    reasoning, guess = response.split(" I choose none of them and guess ")
    assert guess == "(0, 0) (0, 0).</think>\n<answer>(0, 0) (0, 0)</answer>"
    assert len(legal) == sum(entry[-1].isdigit() for entry in reasoning.removesuffix(".").split(";"))
    assert reasoning.count(";") + 1 == 9


OPPOSITE = {(0, 1): (0, -1), (0, -1): (0, 1), (1, 0): (-1, 0), (-1, 0): (1, 0)}


@st.composite
def drawn_boards(draw: st.DrawFn, largest: int = 6) -> Board:
    """Draw boards of any size, even of one row or column, with few kinds of tile and many empty cells."""
    rows, columns = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    tile = st.sampled_from([EMPTY, EMPTY, "red circle", "blue square"])
    return tuple(tuple(draw(tile) for _ in range(columns)) for _ in range(rows))


def fewest_turns(board: Board, start: Cell, end: Cell) -> int | None:
    """Return the fewest turns of any path between two tiles, by breadth-first search; None if there is no path."""
    rows, columns = len(board), len(board[0])
    best: dict[tuple[Cell, Cell], int] = {}
    queue = deque((start, direction, 0) for direction in OPPOSITE)
    found = []
    while queue:
        (row, column), (down, right), turns = queue.popleft()
        there = (row + down, column + right)
        if there == end:
            found.append(turns)
            continue
        in_ring = -1 <= there[0] <= rows and -1 <= there[1] <= columns
        on_board = 0 <= there[0] < rows and 0 <= there[1] < columns
        if not in_ring or (on_board and board[there[0]][there[1]] != EMPTY):
            continue
        for direction in OPPOSITE:
            if direction == OPPOSITE[down, right]:
                continue
            cost = turns + (direction != (down, right))
            if cost < best.get((there, direction), 5):
                best[there, direction] = cost
                queue.append((there, direction, cost))
    return min(found, default=None)


def cells_with_tiles(board: Board) -> list[Cell]:
    return [(r, c) for r, row in enumerate(board) for c, tile in enumerate(row) if tile != EMPTY]


def path_is_free(board: Board, path: list[Cell]) -> bool:
    """Return True if all cells between the ends of a path are empty or in the ring around the board."""
    passed: list[Cell] = []
    for (r0, c0), (r1, c1) in pairwise(path):
        assert (r0 == r1) != (c0 == c1), "segments are straight and not empty"
        steps = abs(r1 - r0) + abs(c1 - c0)
        passed += [(r0 + (r1 - r0) * i // steps, c0 + (c1 - c0) * i // steps) for i in range(1, steps + 1)]
    rows, columns = len(board), len(board[0])
    return all(
        -1 <= r <= rows and -1 <= c <= columns and (not (0 <= r < rows and 0 <= c < columns) or board[r][c] == EMPTY)
        for r, c in passed[:-1]
    )


@settings(max_examples=100)
@given(drawn_boards(), st.integers(0, 4))
def test_paths_and_legal_actions_match_the_reference_search(board: Board, turns: int) -> None:
    finder = PathFinder(len(board), len(board[0]), turns)
    cells = cells_with_tiles(board)
    tiles = sum(1 << finder.square(cell) for cell in cells)
    expected = []
    for first, second in permutations(cells, 2):
        fewest = fewest_turns(board, first, second)
        squares = finder.square(first), finder.square(second)
        path = finder.path(*squares, tiles)
        assert finder.connects(finder.link(*squares), tiles) == (path is not None)
        if fewest is None or fewest > turns:
            assert path is None
            continue
        assert path is not None
        assert (path[0], path[-1], len(path) - 2) == (first, second, fewest)
        assert path_is_free(board, path)
        if board[first[0]][first[1]] == board[second[0]][second[1]]:
            expected.append(first + second)
    assert legal_actions(board, turns) == tuple(sorted(expected))
    end = None if expected else "no pair can be connected" if cells else "cleared"
    assert end_reason(board, turns) == end


def fewest_left(game: ShisenSho, state: ShisenShoState, seen: dict[Board, int]) -> int:
    """Return the fewest tiles that any play leaves, by exhaustive search."""
    if state.board not in seen:
        after = (game.step(state, action, RNG).state for action in game.legal_actions(state) if action[:2] < action[2:])
        seen[state.board] = min((fewest_left(game, one, seen) for one in after), default=tiles_on(state.board).total())
    return seen[state.board]


@st.composite
def games_with_states(draw: st.DrawFn) -> tuple[ShisenSho, ShisenShoState]:
    """Draw small boards, mostly unsolvable; a kind may have an odd number of tiles, or more than `copies`."""
    rows, columns = draw(st.sampled_from([(2, 4), (3, 4), (4, 3), (2, 6), (4, 4)]))
    tile = st.sampled_from([EMPTY, "red circle", "blue square", "green star", "yellow heart"])
    board = tuple(tuple(draw(tile) for _ in range(columns)) for _ in range(rows))
    return game_of(rows=rows, columns=columns, turns=draw(st.integers(0, 2))), ShisenShoState(board)


@settings(max_examples=60)
@given(games_with_states())
def test_plan_leaves_the_fewest_tiles(drawn: tuple[ShisenSho, ShisenShoState]) -> None:
    game, state = drawn
    fewest = fewest_left(game, state, {})
    for action in Solver(state.board, game.config.turns).moves():
        state = game.step(state, action, RNG).state
    assert tiles_on(state.board).total() == fewest
    assert game.ended(state) is not None


@pytest.mark.parametrize(
    "overrides",
    [
        {}, {"copies": 2}, {"rows": 8, "columns": 8}, {"rows": 8, "columns": 8, "copies": 2},
        {"rows": 6, "columns": 5}, {"turns": 0}, {"turns": 2}, {"turns": 4},
    ],
)  # fmt: skip
def test_oracle_clears_solvable_boards_by_its_first_plan(overrides: dict[str, int]) -> None:
    game = game_of(**overrides)
    for seed in range(3):
        state = game.start(np.random.default_rng(seed))
        for move in Solver(state.board, game.config.turns).moves():
            first = next(Solver(state.board, game.config.turns).moves())
            assert game.best_action(state) == first == move
            state = game.step(state, move, RNG).state
        assert game.ended(state) == "cleared"
