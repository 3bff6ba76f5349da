"""Corridors: turns, what is in sight, shortest ways, and the view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.games.puzzles import RNG, oracle_turns
from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.corridors import FORWARD, LEFT, RIGHT, Corridors, CorridorsConfig, CorridorsState

# Two rows of four cells: the upper row is a corridor from the door in the east; a way down in its second cell leads to
# the lower row.
GAME = Corridors(CorridorsConfig(rows=2, columns=4))
OPENINGS = ((2, 14, 10, 8), (2, 11, 10, 8))
AREAS = ((0, 0, 1, 1), (2, 2, 2, 3))
EAST, SOUTH, WEST = 1, 2, 3


def at(player: tuple[int, int], heading: int) -> CorridorsState:
    return CorridorsState(OPENINGS, AREAS, (0, 3), player, heading, 5)


def test_descriptions_list_the_walls_ahead() -> None:
    assert GAME.describe(at((0, 0), EAST)).splitlines() == [
        *("brick, brick", "brick, open", "stone, stone", "stone, stone", "door")
    ]
    assert GAME.describe(at((0, 2), WEST)).splitlines() == ["stone, stone", "open, brick", "brick, brick", "brick"]
    assert GAME.describe(at((0, 1), SOUTH)).splitlines() == ["open, open", "open, open", "wood"]
    assert GAME.describe(at((1, 3), SOUTH)).splitlines() == ["hedge, open", "hedge"]


def test_moves_and_score() -> None:
    state, score = at((1, 0), EAST), 0.0
    for action, player, heading, needed in (
        (FORWARD, (1, 1), 1, 4),
        (LEFT, (1, 1), 0, 3),
        (RIGHT, (1, 1), 1, 4),
        (LEFT, (1, 1), 0, 3),
        (FORWARD, (0, 1), 0, 2),
    ):
        step = GAME.step(state, action, RNG)
        state, score = step.state, score + step.reward
        assert (state.player, state.heading) == (player, heading)
        assert GAME.metrics(state, ())["actions needed"] == needed + 1
        assert score == pytest.approx(max(0, 1 - (needed + 1) / 5))
    with pytest.raises(IllegalAction, match="there is a wall ahead"):
        GAME.step(state, FORWARD, RNG)
    assert oracle_turns(GAME, state) == 3


def red(state: CorridorsState) -> Any:
    """Return which pixels of a view of 400 x 400 pixels, with walls of stone, show the door."""
    game = make_game("corridors", 1, rows=2, columns=4, size=400, contrast=1.0)
    image = game.images(replace(state, areas=((1,) * 4,) * 2))[0].astype(int)
    return (image[..., 0] > 2.5 * image[..., 1]) & (image[..., 0] > 2.5 * image[..., 2])


def test_the_door_gets_larger_and_is_hidden_by_walls() -> None:
    heights = [int(red(at((0, column), EAST)).any(axis=1).sum()) for column in range(4)]
    for height, distance in zip(heights, (3.95, 2.95, 1.95, 0.95)):
        assert height == pytest.approx(400 / 2 / distance * 28 / 32, abs=6)  # the door has 28/32 of the wall's height
    assert red(at((1, 0), EAST)).any()  # through the opening ahead on the left
    assert not red(at((1, 1), EAST)).any()
    assert not red(at((0, 2), WEST)).any()
    columns = np.flatnonzero(red(at((0, 0), EAST)).any(axis=0))
    assert columns.mean() == pytest.approx(199.5, abs=3)


def test_every_effect_changes_the_view() -> None:
    state = at((0, 0), EAST)
    plain = GAME.images(state)[0]
    effects: dict[str, Any] = {"blur": 1, "noise": 0.1, "contrast": 0.5, "clutter": 3, "scale": 0.5}
    for name, value in {**effects, "shade": 0.5, "crop": 0.1}.items():
        (image,) = make_game("corridors", rows=2, columns=4, **{name: value}).images(state)
        assert (image != plain).any(), name
