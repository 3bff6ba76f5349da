"""Sudoku: puzzles with one solution, rules, and answers."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.errors import GenerationError, IllegalAction
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.games.sudoku import Puzzle, box_shape, deal

LEVELS = [1, 2, 3, 4, 5]


def naive_candidates(board: tuple[str, ...], row: int, column: int) -> set[str]:
    height, width = box_shape(len(board))
    top, left = row // height * height, column // width * width
    box = "".join(line[left : left + width] for line in board[top : top + height])
    seen = {*board[row], *(line[column] for line in board), *box}
    return {str(number) for number in range(1, len(board) + 1)} - seen


@pytest.mark.parametrize("level", LEVELS)
def test_puzzles_have_one_solution_and_the_clues_of_their_level(level: int) -> None:
    config = make_game("sudoku", reasoning=level).config
    for seed in range(5):
        numbers, solution = deal(config.rows, config.clues, config.search, seed)
        assert [*islice(Puzzle(numbers, config.rows).solutions(), 2)] == [solution]
        assert sum(map(bool, numbers)) == pytest.approx(config.clues, abs=3)


@pytest.mark.parametrize("level", LEVELS)
def test_legal_actions_are_the_numbers_that_break_no_rule(level: int) -> None:
    game: Any = make_game("sudoku", reasoning=level)
    board = game.start(np.random.default_rng(level)).board
    expected = {
        (row, column, int(number))
        for row, line in enumerate(board)
        for column, given in enumerate(line)
        if given == "0"
        for number in naive_candidates(board, row, column)
    }
    assert set(game.legal_actions(game.start(np.random.default_rng(level)))) == expected


def test_search_deals_puzzles_that_the_two_rules_do_not_solve() -> None:
    for seed in range(3):
        for search in (False, True):
            numbers, solution = deal(9, 26, search, seed)
            assert Puzzle(numbers, 9).is_simple(solution) != search
    with pytest.raises(GenerationError, match="70 clues that needs a search"):
        deal(9, 70, True, 0)


def test_mistakes_are_not_written_and_end_the_game() -> None:
    game: Any = make_game("sudoku", rows=4, columns=4, clues=4, mistakes=2)
    state = game.start(np.random.default_rng(0))
    wrong = [(r, c, number) for r, c, number in game.legal_actions(state) if state.solution[r][c] != str(number)]
    once = game.step(state, wrong[0], np.random.default_rng(0))
    assert (once.state.board, once.reward, game.ended(once.state)) == (state.board, 0.0, None)
    assert "the next mistake ends the game" in game.prompt(once.state)
    twice = game.step(once.state, wrong[0], np.random.default_rng(0))
    assert game.ended(twice.state) == "too many mistakes"


def test_illegal_actions_say_why() -> None:
    game: Any = make_game("sudoku", origin=1)
    state = game.start(np.random.default_rng(0))
    row, column = next((r, c) for r in range(9) for c in range(9) if state.board[r][c] != "0")
    free = next((r, c) for r in range(9) for c in range(9) if state.board[r][c] == "0")
    taken = int(next(number for number in state.board[free[0]] if number != "0"))
    for action, reason in (
        ((row, column, 1), "is not empty"),
        ((*free, taken), "already in the row, column or box"),
        ((*free, 0), "not a number from 1 to 9"),
        ((9, 0, 1), r"\(10, 1\) is outside"),
    ):
        with pytest.raises(IllegalAction, match=reason):
            game.step(state, action, np.random.default_rng(0))


@pytest.mark.parametrize(("config", "search"), [({"reasoning": 3}, False), ({"clues": 0, "search": True}, True)])
def test_explanations_try_numbers_only_where_the_rules_do_not_suffice(config: dict[str, Any], search: bool) -> None:
    game: Any = make_game("sudoku", **config)
    episode, tried = Episode(game, 0), False
    while episode.ended is None:
        action = game.best_action(episode.state)
        tried |= "I try" in game.explain(episode.state, action)
        episode.act(action)
    assert (episode.ended, tried) == ("the Sudoku is solved", search)
