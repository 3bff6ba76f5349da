"""Nonograms: clues, the line solver against all boards, and unique solutions."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from tests.games.puzzles import RNG
from vlmgym import make_game
from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.games.nonogram import Clues, Nonogram, NonogramConfig, NonogramState, clues, solve


def test_clues_are_the_lengths_of_blocks() -> None:
    assert clues(("##.#", "....", "#.##")) == (((2, 1), (), (1, 2)), ((1, 1), (1,), (1,), (1, 1)))


def test_the_solver_finds_only_unique_solutions() -> None:
    boards = defaultdict(list)
    for cells in product(".#", repeat=12):
        board = tuple("".join(cells[start : start + 4]) for start in (0, 4, 8))
        boards[clues(board)].append(board)
    solved = {known: solve(*known) for known in boards}
    for known, solution in solved.items():
        assert solution is None or boards[known] == [solution]
    assert sum(solution is not None for solution in solved.values()) > 1000


def answers(known: Clues) -> list[tuple[str, ...]]:
    """Return all boards with these clues, row by row."""
    across, down = known
    rows = [
        ["".join(c) for c in product(".#", repeat=len(down)) if clues(("".join(c),))[0] == (clue,)] for clue in across
    ]
    return [board for board in product(*rows) if clues(board)[1] == down]


@pytest.mark.parametrize("level", [1, 2, 3])
def test_puzzles_have_one_solution(level: int) -> None:
    game = make_game("nonogram", reasoning=level)
    for seed in range(5):
        state = game.start(np.random.default_rng(seed))
        assert answers(clues(state.solution)) == [state.solution]


def test_right_and_wrong_cells() -> None:
    game = Nonogram(NonogramConfig(rows=2, columns=2, mistakes=1))
    state = NonogramState(("..", ".."), ("##", ".#"))
    step = game.step(state, (1, 1), RNG)
    assert step.reward == pytest.approx(1 / 3)
    with pytest.raises(IllegalAction, match=r"\(1, 1\) is not open"):
        game.step(step.state, (1, 1), RNG)
    wrong = game.step(step.state, (1, 0), RNG)
    assert wrong.state.board == ("..", "x#")
    assert game.ended(wrong.state) == "1 wrong cells"
    assert game.describe(wrong.state).splitlines() == ["1, 2", "2, 1", "open, open", "wrong, filled"]
    with pytest.raises(StateError, match="against the solution"):
        game.require_valid(NonogramState(("..", "#."), ("##", ".#")))
