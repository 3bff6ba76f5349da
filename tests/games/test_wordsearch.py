"""Word search: words occur once, in allowed directions; only straight lines of a fitting length can be chosen."""

from __future__ import annotations

import numpy as np
import pytest

from tests.games.puzzles import RNG
from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.wordsearch import Wordsearch, WordsearchConfig, WordsearchState

GAME = Wordsearch(WordsearchConfig(rows=5, columns=5, words=2, directions=4, mistakes=2))
STATE = WordsearchState(("CATXX", "XXXXX", "XDXXX", "XXOXX", "XXXGX"), (("CAT", (0, 0, 0, 2)), ("DOG", (2, 1, 4, 3))))


def lines(board: tuple[str, ...]) -> list[str]:
    """Return all straight lines of letters in the eight directions, from edge to edge."""
    grid = np.array([[*row] for row in board])
    turned = [np.rot90(grid, turns) for turns in range(4)]
    straight = ["".join(row) for turn in turned for row in turn]
    offsets = range(-len(board) + 1, len(board[0]))
    return straight + ["".join(turn.diagonal(offset)) for turn in turned for offset in offsets]


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_every_word_occurs_once(level: int) -> None:
    game = make_game("wordsearch", reasoning=level)
    for seed in range(10):
        state = game.start(np.random.default_rng(seed))
        read = " ".join(lines(state.board))
        for word, (row, column, last_row, last_column) in state.words:
            assert sum(read.startswith(word, start) for start in range(len(read))) == 1
            assert game.config.directions == 8 or last_column >= column
            assert game.config.directions > 2 or row == last_row or column == last_column


def test_right_wrong_and_illegal_answers() -> None:
    state = GAME.step(STATE, (0, 0, 0, 2), RNG).state
    assert state.found == (0,)
    for line, fault in (((0, 0, 1, 2), "not in a straight line"), ((0, 0, 0, 3), "no word that is left has 4 letters")):
        with pytest.raises(IllegalAction, match=fault):
            GAME.step(state, line, RNG)
    wrong = GAME.step(GAME.step(state, (0, 0, 0, 2), RNG).state, (4, 3, 2, 1), RNG).state  # found before; backwards
    assert GAME.ended(wrong) == "2 wrong answers"
    assert GAME.ended(GAME.step(state, (2, 1, 4, 3), RNG).state) == "all words have been found"
    assert "DOG" in GAME.prompt(state)
    assert "CAT" not in GAME.prompt(state)
