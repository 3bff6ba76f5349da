"""Tic-tac-toe: rules and the opponent, compared with minimax over strings."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.games.lines import LineState

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def winner(cells: str) -> str | None:
    return next((cells[a] for a, b, c in LINES if cells[a] == cells[b] == cells[c] != "."), None)


@cache
def value(cells: str, player: str) -> int:
    """Return the value for the player to move (1, 0 or -1), by plain minimax."""
    if winner(cells):
        return -1
    other = "O" if player == "X" else "X"
    return max((-value(after, other) for after in moves(cells, player)), default=0)


def moves(cells: str, player: str) -> list[str]:
    return [cells[:i] + player + cells[i + 1 :] for i, cell in enumerate(cells) if cell == "."]


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


@pytest.mark.parametrize("mover", ["oracle", "opponent"])
def test_play_is_perfect_in_random_positions(mover: str) -> None:
    game: Any = make_game("tictactoe", reasoning=5)
    rng = np.random.default_rng(0)
    for _ in range(150):
        cells, player = "." * 9, "XO"[int(rng.integers(2))]
        for _ in range(int(rng.integers(9))):
            cells = str(rng.choice(moves(cells, player)))
            player = "O" if player == "X" else "X"
        if winner(cells) or "." not in cells or (player == "X") != (mover == "oracle"):
            continue
        if mover == "oracle":
            row, column = game.best_action(state_of(cells))
            after = cells[: 3 * row + column] + "X" + cells[3 * row + column + 1 :]
        else:
            after = "".join(game._reply(state_of(cells), rng).board)
        assert -value(after, "O" if player == "X" else "X") == value(cells, player)


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
