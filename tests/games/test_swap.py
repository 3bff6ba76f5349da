"""Swap: rules (compared with an independent reference), states, text and the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import Pair
from vlmgym.sandbox.games import swap
from vlmgym.sandbox.games.swap import Board, Swap, SwapConfig, SwapState, search_lines

small = st.builds(
    lambda rows, columns, colours, shapes: Swap(SwapConfig(rows=rows, columns=columns, colours=colours, shapes=shapes)),
    st.integers(3, 5),
    st.integers(3, 5),
    st.integers(2, 4),
    st.integers(2, 3),
)
seeds = st.integers(0, 2**32)

# Only tiles 0 and 1 occur more than once.
BOARD: Board = ((10, 11, 12, 13, 14), (15, 16, 0, 17, 18), (0, 0, 19, 0, 0), (20, 1, 1, 21, 22), (23, 24, 25, 1, 26))


def in_runs(board: Board) -> set[tuple[int, int]]:
    """Find the cells of runs by scanning both ways from each cell."""
    rows, columns = len(board), len(board[0])
    found = set()
    for row, column in itertools.product(range(rows), range(columns)):
        for down, right in ((0, 1), (1, 0)):
            length = 1
            for sign in (-1, 1):
                r, c = row + sign * down, column + sign * right
                while 0 <= r < rows and 0 <= c < columns and board[r][c] == board[row][column]:
                    length, r, c = length + 1, r + sign * down, c + sign * right
            if length >= 3:
                found.add((row, column))
    return found


def swapped(board: Board, action: tuple[int, ...]) -> Board:
    cells = [list(row) for row in board]
    r1, c1, r2, c2 = action
    cells[r1][c1], cells[r2][c2] = cells[r2][c2], cells[r1][c1]
    return tuple(map(tuple, cells))


def brute_force_legal(board: Board) -> list[Pair]:
    rows, columns = len(board), len(board[0])
    everything = itertools.product(range(rows), range(columns), range(rows), range(columns))
    return [
        action
        for action in everything
        if abs(action[0] - action[2]) + abs(action[1] - action[3]) == 1
        and swapped(board, action) != board
        and in_runs(swapped(board, action))
    ]


def points_of_runs(board: Board) -> int:
    lengths = [len([*group]) for line in (*board, *zip(*board)) for _, group in itertools.groupby(line)]
    return sum(max(0, length - 2) for length in lengths)


def play_out(board: Board, kinds: int, rng: np.random.Generator) -> tuple[Board, int, int, int]:
    """Return the board after a cascade, the number of tiles cleared, the number of rounds, and the score."""
    cleared = rounds = score = 0
    while runs := in_runs(board):
        score += (rounds + 1) * points_of_runs(board)
        new = iter(rng.integers(kinds, size=len(runs)).tolist())
        columns = []
        for c in range(len(board[0])):
            gone = [r for r in range(len(board)) if (r, c) in runs]
            columns.append([next(new) for _ in gone] + [board[r][c] for r in range(len(board)) if r not in gone])
        board = tuple(zip(*columns))
        cleared, rounds = cleared + len(runs), rounds + 1
    return board, cleared, rounds, score


def some_move(game: Swap, seed: int) -> tuple[SwapState, Any, np.random.Generator]:
    rng = np.random.default_rng(seed)
    state = game.start(rng)
    actions = game.legal_actions(state)
    return state, actions[seed % len(actions)], rng


def flat(board: Board) -> list[int]:
    return [tile for row in board for tile in row]


# Rules --------------------------------------------------------------------------------------------------------------


@given(small, seeds)
def test_legal_actions_match_brute_force(game: Swap, seed: int) -> None:
    state = game.start(np.random.default_rng(seed))
    assert list(game.legal_actions(state)) == brute_force_legal(state.board)


@given(
    st.integers(3, 16),
    st.integers(3, 16),
    st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, 8))),
)
@settings(max_examples=60, deadline=None)
def test_dealt_boards_have_a_move_and_no_runs(rows: int, columns: int, kinds: tuple[int, int]) -> None:
    if kinds[0] * kinds[1] < swap.MIN_KINDS:
        return
    game = Swap(SwapConfig(rows=rows, columns=columns, colours=kinds[0], shapes=kinds[1]))
    board = game.start(np.random.default_rng(0)).board
    assert (len(board), len(board[0])) == (rows, columns)
    assert not in_runs(board)
    assert game.legal_actions(SwapState(board))


@given(small, seeds)
def test_step_matches_the_reference(game: Swap, seed: int) -> None:
    state, action, rng = some_move(game, seed)
    reference_rng = np.random.default_rng()
    reference_rng.bit_generator.state = rng.bit_generator.state
    step = game.step(state, action, rng)
    board, cleared, rounds, score = play_out(swapped(state.board, action), game.config.kinds, reference_rng)

    assert (step.info["cleared"], step.info["cascade"], step.reward) == (cleared, rounds, score)
    assert not in_runs(step.state.board)
    assert brute_force_legal(step.state.board)
    if brute_force_legal(board):
        assert step.state.board == board
        assert not step.info["reshuffled"]
        assert not step.info["redealt"]
    else:
        assert step.info["reshuffled"] != step.info["redealt"]
        if step.info["reshuffled"]:
            assert sorted(flat(step.state.board)) == sorted(flat(board))


def test_endless_cascade_deals_a_new_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "MAX_ROUNDS", 1)
    game = Swap(SwapConfig(colours=3, shapes=1))
    infos = []
    for seed in range(10):
        state, action, rng = some_move(game, seed)
        step = game.step(state, action, rng)
        assert game.legal_actions(step.state)
        infos.append(step.info)
    assert all(info["cascade"] == 1 for info in infos)
    assert any(info["redealt"] for info in infos)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ((0, 0, 0, 5), r"\(0, 5\) is outside the 5 x 5 board"),
        ((-1, 0, 0, 0), r"\(-1, 0\) is outside the 5 x 5 board"),
        ((2, 2, 2, 2), r"\(2, 2\) is given twice"),
        ((0, 0, 1, 1), r"\(0, 0\) and \(1, 1\) are not adjacent"),
        ((0, 0, 0, 2), r"\(0, 0\) and \(0, 2\) are not adjacent"),
        ((2, 0, 2, 1), r"\(2, 0\) and \(2, 1\) changes nothing: .* red circle"),
        ((0, 0, 0, 1), r"\(0, 0\) and \(0, 1\) makes no run of three"),
    ],
)
def test_illegal_actions_have_a_reason(action: Any, reason: str) -> None:
    with pytest.raises(IllegalAction, match=reason):
        five_by_five().step(SwapState(BOARD), action, np.random.default_rng(0))


def five_by_five(**overrides: Any) -> Swap:
    return Swap(SwapConfig(rows=5, columns=5, colours=8, shapes=8, **overrides))


# Text ---------------------------------------------------------------------------------------------------------------


def test_explanation_searches_lines_and_names_the_run() -> None:
    game = Swap(SwapConfig(rows=3, columns=3, colours=3, shapes=1, origin=1))
    state = SwapState(((0, 1, 2), (1, 0, 0), (2, 1, 2)))
    assert game.explain(state, (1, 0, 0, 0)) == (
        "Tiles, tiles needed before; tiles before, needed, beside: "
        "column 3: green circle, none, red circle, none, green circle, none, needs, "
        "none, none, none, green circle, none, none; "
        "row 1: red circle, none, blue circle, none, green circle, none, needs, none, none, none, none, none, none; "
        "row 2: blue circle, none, red circle, none, red circle, none, needs, red circle, red circle, equal at 1. "
        "Swapping (2, 1) and (1, 1) lines up 3 red circle tiles in row 2, columns 1 to 3."
    )


@given(small, seeds)
def test_search_shows_only_legal_swaps_and_all_but_twins(game: Swap, seed: int) -> None:
    state = game.start(np.random.default_rng(seed))
    shown = {swap for line in search_lines(game.rules, flat(state.board)) for _, swap in line.legal}
    legal = {min(action, (*action[2:], *action[:2])) for action in game.legal_actions(state)}
    assert shown <= legal
    assert game.rule_action(state) in shown
    twins = {(a, b + 1, c, d + 1) if a == c else (a + 1, b, c + 1, d) for a, b, c, d in shown}
    assert legal <= shown | twins, "in a line a, a, b, a, a, the search shows only the first swap with b"


# Oracle -------------------------------------------------------------------------------------------------------------


def test_oracle_takes_the_longer_run() -> None:
    game, state = five_by_five(), SwapState(BOARD)
    assert set(game.legal_actions(state)) > {(1, 2, 2, 2), (3, 3, 4, 3)}
    assert game.best_action(state) == (1, 2, 2, 2)
    assert game.is_as_good(state, (2, 2, 1, 2), (1, 2, 2, 2))
    assert not game.is_as_good(state, (3, 3, 4, 3), (1, 2, 2, 2))


def test_oracle_sees_runs_made_by_falling_tiles() -> None:
    # The 1s and the 0s can both make a run of three, but clearing the 1s also drops a 2 next to the other 2s.
    board: Board = ((10, 11, 12, 13, 14), (15, 16, 17, 2, 18), (0, 0, 19, 1, 20), (21, 22, 0, 1, 23), (24, 2, 2, 27, 1))
    game = five_by_five()
    assert set(game.legal_actions(SwapState(board))) >= {(2, 2, 3, 2), (4, 3, 4, 4)}
    assert game.best_action(SwapState(board)) == (4, 3, 4, 4)
