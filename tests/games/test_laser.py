"""Laser: the path of the beam, smallest solutions and the limit of turns."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tests.games.puzzles import RNG
from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.laser import Laser, LaserConfig, LaserState, fewest_turns, is_solved, trace, turned_mirror

BOARD = (">./.", ".../", "o.#.", "../o")
GAME = Laser(LaserConfig(rows=4, columns=4, mirrors=1, targets=2, moves=1))


def cells(board: tuple[str, ...]) -> list[tuple[int, int]]:
    return [cell for cell, _ in trace(board)]


def test_mirrors_turn_the_beam_and_walls_stop_it() -> None:
    assert cells(BOARD) == [(0, 1), (0, 2)]
    assert cells(turned_mirror(BOARD, (0, 2))) == [(0, 1), (0, 2), (1, 2), (2, 2)]
    assert cells((">.\\", "o./", "..#")) == [(0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]
    assert cells(("..", "\\<", "/.")) == [(1, 0), (0, 0)]
    assert cells((".v", "\\/", "o.")) == [(1, 1), (1, 0), (0, 0)]


def test_a_beam_may_cross_itself_and_use_both_sides_of_a_mirror() -> None:
    crossing = ("../.\\", ".....", ">.../", ".....")
    assert cells(crossing)[-4:] == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert cells(crossing).count((2, 2)) == 2
    both = ("../.\\", ".....", ">././", ".....")
    assert cells(both)[-3:] == [(2, 3), (2, 2), (3, 2)]
    assert cells(both).count((2, 2)) == 2


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_solutions_are_smallest(level: int) -> None:
    game = make_game("laser", reasoning=level)
    for seed in range(5):
        state = game.start(np.random.default_rng(seed))
        mirrors = game.legal_actions(state) or ()
        solution = fewest_turns(state.board, state.left)
        assert solution is not None
        assert len(solution) == game.config.moves
        for count in range(game.config.moves):
            for chosen in combinations(mirrors, count):
                board = state.board
                for cell in chosen:
                    board = turned_mirror(board, cell)
                assert not is_solved(board)


def test_turns_are_limited() -> None:
    game = make_game("laser", reasoning=1)
    state = game.start(np.random.default_rng(0))
    wrong = next(cell for cell in game.legal_actions(state) or () if cell != game.best_action(state))
    for _ in range(2):
        assert game.ended(state) is None
        step = game.step(state, wrong, RNG)
        state = step.state
        assert step.reward == 0.0
    assert game.ended(state) == "no turns are left"
    assert game.legal_actions(state) == ()


def test_only_mirrors_can_be_turned() -> None:
    state = LaserState(BOARD, 2)
    assert GAME.legal_actions(state) == ((0, 2), (1, 3), (3, 2))
    for cell in ((0, 0), (0, 1), (2, 0), (2, 2)):
        with pytest.raises(IllegalAction, match="there is no mirror at"):
            GAME.step(state, cell, RNG)
    assert GAME.describe(state).splitlines()[2] == "target, empty, wall, empty"
