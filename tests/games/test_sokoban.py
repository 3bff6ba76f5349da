"""Sokoban: pushes, walls, solvable rooms and the solver."""

from __future__ import annotations

import numpy as np
import pytest

from tests.games.puzzles import RNG
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.core.search import shortest_path
from vlmgym.sandbox.games.sokoban import Sokoban, SokobanConfig, SokobanState

UP, RIGHT, DOWN, LEFT = range(4)


def state_of(*rows: str) -> tuple[Sokoban, SokobanState]:
    boxes = sum(row.count("$") + row.count("*") for row in rows)
    return Sokoban(SokobanConfig(rows=len(rows), columns=len(rows[0]), boxes=boxes)), SokobanState(rows)


@pytest.mark.parametrize(
    ("row", "after", "reward"),
    [
        ("#@ .$#", "# @.$#", 0.0),
        ("#@$. #", "# @* #", 1.0),
        ("#@* .#", "# +$.#", -1.0),
        ("#+$  #", "#.@$ #", 0.0),
        ("#@*. #", "# +* #", 0.0),
    ],
)
def test_moves_and_pushes(row: str, after: str, reward: float) -> None:
    game, state = state_of("######", row, "#$  .#", "######", "######")
    step = game.step(state, RIGHT, RNG)
    assert step.state.board[1] == after
    assert step.reward * game.config.boxes == pytest.approx(reward)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("#   @##", "there is a wall"),
        ("#..@$$ #", "behind the box there is a box"),
        ("#  .@$#", "behind the box there is a wall"),
        ("#  .@*#", "behind the box there is a wall"),
    ],
)
def test_blocked_moves(row: str, reason: str) -> None:
    wall = "#" * len(row)
    game, state = state_of(wall, row, f"#$ .{'#' * (len(row) - 4)}", wall, wall, wall)
    with pytest.raises(IllegalAction, match=f"the player cannot move right: {reason}"):
        game.step(state, RIGHT, RNG)
    assert RIGHT not in game.legal_actions(state)


def test_the_last_box_ends_the_episode() -> None:
    game, state = state_of("######", "#@$. #", "# $. #", "######", "######")
    for action, solved in ((RIGHT, False), (LEFT, False), (DOWN, False), (RIGHT, True)):
        step = game.step(state, action, RNG)
        assert (game.ended(step.state) is not None) is solved
        state = step.state
    assert game.legal_actions(state) == ()


def test_a_box_in_a_corner_has_no_solution() -> None:
    game, state = state_of("######", "#$ @ #", "#  . #", "######", "######")
    assert game.best_action(state) is None
    assert game.ended(state) is None


def test_the_oracle_plays_the_first_shortest_solution() -> None:
    game = Sokoban(SokobanConfig(rows=7, columns=7, boxes=2))
    for seed in range(20):
        state = game.start(np.random.default_rng(seed))
        plan = shortest_path(
            state,
            lambda state: [(action, game.step(state, action, RNG).state) for action in game.legal_actions(state)],
            lambda state: game.ended(state) is not None,
        )
        assert plan
        assert [game.best_action(state) for state, _ in plan] == [action for _, action in plan]
        assert [Sokoban(game.config).best_action(state) for state, _ in plan] == [action for _, action in plan]
