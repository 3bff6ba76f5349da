"""Four in a row and tic-tac-toe: lines, gravity, and search, compared with minimax to the end."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.games.line_duel import WIN, LineState, _pieces, line_rules, search

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
def test_line_duel_and_legal_columns(columns: list[int]) -> None:
    board = dropped(columns)
    own, other = (naive_line(board, piece) for piece in "XO")
    state = LineState(board)
    assert [GAME.rules.has_line(pieces) for pieces in _pieces(state.board)] == [own, other]
    if not own and not other:
        assert list(GAME.legal_actions(state)) == [column for column in range(7) if board[0][column] == "."]
        for column in GAME.legal_actions(state):
            height = sum(row[column] != "." for row in board)
            row = board[5 - height]
            after = (*board[: 5 - height], row[:column] + "X" + row[column + 1 :], *board[6 - height :])
            square = GAME.rules.square(height, column)
            assert GAME.rules.completes(_pieces(board)[0], square) == naive_line(after, "X")


def plain_value(rules: Any, own: int, other: int) -> int:
    """Return the sign of the value by minimax to the end, without pruning."""
    moves = rules.moves(own | other)
    if any(rules.completes(own, move) for move in moves):
        return 1
    return max((-plain_value(rules, other, own | move) for move in moves), default=0)


@settings(max_examples=15)
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


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def state_of(cells: str) -> LineState:
    return LineState((cells[:3], cells[3:6], cells[6:]))


def test_ends_and_legal_actions_on_all_boards() -> None:
    game: Any = make_game("tictactoe")
    for cells in map("".join, product("XO.", repeat=9)):
        if abs(cells.count("X") - cells.count("O")) > 1:
            continue
        won = {cells[a] for a, b, c in LINES if cells[a] == cells[b] == cells[c] != "."}
        if len(won) > 1:
            continue
        ended = {"X": "won", "O": "lost"}.get(next(iter(won), ""), None if "." in cells else "drawn")
        assert game.ended(state_of(cells)) == ended
        free = [] if ended else [divmod(i, 3) for i, cell in enumerate(cells) if cell == "."]
        assert list(game.legal_actions(state_of(cells))) == free


def test_results_and_rewards() -> None:
    scores = {"won": 1.0, "drawn": 0.5, "lost": 0.0}
    results: Counter[str] = Counter()
    for skill in (0.0, 1.0):
        game: Any = make_game("tictactoe", skill=skill)
        for seed in range(60):
            episode, rng = Episode(game, seed), np.random.default_rng(seed)
            while episode.ended is None:
                legal = game.legal_actions(episode.state)
                episode.act(legal[int(rng.integers(len(legal)))])
            result = str(game.metrics(episode.state, [])["result"])
            assert episode.score == scores[result]
            results[f"{result} at {skill}"] += 1
    assert results["won at 1.0"] == 0
    assert min(results[f"{result} at 0.0"] for result in scores) > 0
