"""Four in a row: lines, gravity, search and answers."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.sandbox.games.lines import WIN, LineState, _pieces, line_rules, search

GAME: Any = make_game("fourinarow")


def naive_line(board: tuple[str, ...], piece: str) -> bool:
    def at(row: int, column: int) -> str:
        return board[row][column] if 0 <= row < len(board) and 0 <= column < len(board[0]) else ""

    return any(
        all(at(row + down * i, column + right * i) == piece for i in range(4))
        for row, column in product(range(len(board)), range(len(board[0])))
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    )


def dropped(columns: list[int], rows: int = 6, width: int = 7) -> tuple[str, ...]:
    """Return the board after drops by alternating players; drops into full columns are skipped."""
    stacks: list[str] = [""] * width
    for number, column in enumerate(columns):
        if len(stacks[column]) < rows:
            stacks[column] += "XO"[number % 2]
    return tuple("".join(stack[row] if row < len(stack) else "." for stack in stacks) for row in reversed(range(rows)))


@given(st.lists(st.integers(0, 6), max_size=42))
def test_lines_and_legal_columns(columns: list[int]) -> None:
    board = dropped(columns)
    own, other = (naive_line(board, piece) for piece in "XO")
    state = LineState(board)
    assert [GAME.rules.has_line(pieces) for pieces in _pieces(state.board)] == [own, other]
    if not own and not other:
        assert list(GAME.legal_actions(state)) == [column for column in range(7) if board[0][column] == "."]


def plain_value(rules: Any, own: int, other: int) -> int:
    """Return the sign of the value by minimax to the end, without pruning."""
    moves = rules.moves(own | other)
    if any(rules.completes(own, move) for move in moves):
        return 1
    return max((-plain_value(rules, other, own | move) for move in moves), default=0)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=28, max_size=60))
def test_search_agrees_with_minimax_to_the_end(columns: list[int]) -> None:
    rules = line_rules(4, 4, 4, True)
    board = dropped(columns, 4, 4)
    if naive_line(board, "X") or naive_line(board, "O") or not any("." in row for row in board):
        return
    own, other = _pieces(board)
    found = search(rules, own, other, 10**6)
    assert (found.value >= WIN) - (found.value <= -WIN) == plain_value(rules, own, other)
    for move in found.moves:
        sign = 1 if rules.completes(own, move) else -plain_value(rules, other, own | move)
        assert sign == plain_value(rules, own, other)


def test_the_opponent_completes_and_stops_lines() -> None:
    game: Any = make_game("fourinarow", skill=1.0, depth=1)
    for board in (("." * 7,) * 5 + ("OOO.XX.",), ("." * 7,) * 5 + ("XXX.OO.",)):
        assert game._reply(LineState(board), np.random.default_rng(0)).board[5][3] == "O"


def test_number_keys_name_columns_from_the_origin() -> None:
    game = make_game("fourinarow", origin=1)
    assert [game.answer.key(key) for key in "4120"] == [3, 0, 1, None]
