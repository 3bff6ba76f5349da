"""Hidden-rule grids: rules do what they say, and the examples leave one answer."""

from __future__ import annotations

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.sandbox.games.grids import MOVES, Grid, all_rules, changes

RNG = np.random.default_rng(0)
GRID: Grid = ((1, 0, 2), (0, 0, 1), (0, 3, 0))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("mirror left and right", ((2, 0, 1), (1, 0, 0), (0, 3, 0))),
        ("mirror top and bottom", ((0, 3, 0), (0, 0, 1), (1, 0, 2))),
        ("mirror along the diagonal from the upper left", ((1, 0, 0), (0, 0, 3), (2, 1, 0))),
        ("rotate by a quarter turn clockwise", ((0, 0, 1), (3, 0, 0), (0, 1, 2))),
        ("rotate by a quarter turn counter-clockwise", ((2, 1, 0), (0, 0, 3), (1, 0, 0))),
        ("rotate by a half turn", ((0, 3, 0), (1, 0, 0), (2, 0, 1))),
        ("fall to the right", ((0, 1, 2), (0, 0, 1), (0, 0, 3))),
        ("fall to the left", ((1, 2, 0), (1, 0, 0), (3, 0, 0))),
        ("fall to the bottom", ((0, 0, 0), (0, 0, 2), (1, 3, 1))),
        ("fall to the top", ((1, 3, 2), (0, 0, 1), (0, 0, 0))),
        ("shift right by one column, with the last column going first", ((2, 1, 0), (1, 0, 0), (0, 0, 3))),
        ("shift down by one row, with the last row going first", ((0, 3, 0), (1, 0, 2), (0, 0, 1))),
    ],
)
def test_moves(rule: str, expected: Grid) -> None:
    assert MOVES[rule](GRID) == expected


def test_changes_of_colours() -> None:
    assert changes(3)["swap black and blue"](GRID) == ((0, 1, 2), (1, 1, 0), (1, 3, 1))
    assert changes(3)["change red to green"](GRID) == ((1, 0, 3), (0, 0, 1), (0, 3, 0))
    assert all_rules(3)["rotate by a half turn, then change red to green"](GRID) == ((0, 3, 0), (1, 0, 0), (3, 0, 1))


@pytest.mark.parametrize("level", [1, 3, 5])
def test_all_rules_that_fit_give_the_answer(level: int) -> None:
    game = make_game("grids", reasoning=level)
    for seed in range(10):
        state = game.start(np.random.default_rng(seed))
        fitting = [
            name
            for name, rule in all_rules(game.config.colours).items()
            if all(rule(grid) == output for grid, output in state.examples)
        ]
        assert state.rule in fitting
        assert {all_rules(game.config.colours)[name](state.test) for name in fitting} == {
            all_rules(game.config.colours)[state.rule](state.test)
        }
        assert game.config.steps == 1 or all(", then" in name for name in fitting)
        assert game.step(state, state.answer, RNG).reward == 1.0


def test_one_wrong_cell_scores_nothing_and_brackets_are_ignored() -> None:
    game = make_game("grids", reasoning=1)
    state = game.start(np.random.default_rng(0))
    rows = [row.split(", ") for row in state.answer.split("; ")]
    assert game.step(state, "; ".join(f"[{', '.join(row).upper()}]" for row in rows), RNG).reward == 1.0
    rows[2][2] = "blue" if rows[2][2] != "blue" else "red"
    assert game.step(state, "; ".join(map(", ".join, rows)), RNG).reward == 0.0
    assert game.step(state, state.answer.replace("; ", ", "), RNG).reward == 0.0
