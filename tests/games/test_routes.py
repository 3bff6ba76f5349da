"""Routes: walking by the words, or along the line, gives the answer."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.sandbox.games.routes import RoutesState
from vlmgym.sandbox.games.scenes.scene import NUMBERS

NORTH = (-1, 0)
STEPS = {"north": NORTH, "east": (0, 1), "south": (1, 0), "west": (0, -1)}


def walk(state: RoutesState) -> str:
    """Follow directions word by word, or count turns by cross products along the route."""
    places = dict(state.places)
    if state.kind == "turns":
        steps = np.diff(np.array(state.route), axis=0)
        turns = [int(a[1] * b[0] - a[0] * b[1]) for a, b in itertools.pairwise(steps)]
        return str(turns.count(1 if "turn right" in state.question else -1))
    cell = places[re.findall(r"Start at the (\w+)", state.question)[0]]
    step = NORTH
    words = re.findall(r"\w+", state.question.split(".")[1])
    for index, word in enumerate(words):
        if word in ("right", "left"):
            row, column = step
            step = (column, -row) if word == "right" else (-column, row)
        elif word in STEPS:
            step = STEPS[word]
        if word in NUMBERS:
            after = words[index + 2 : index + 3]
            if after and after[0] in STEPS:
                step = STEPS[after[0]]
            cell = cell[0] + NUMBERS.index(word) * step[0], cell[1] + NUMBERS.index(word) * step[1]
    (name,) = (name for name, place in state.places if place == cell)
    return name


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_walking_gives_the_answer(level: int) -> None:
    game = make_game("routes", perception=level, reasoning=level)
    kinds = set()
    for seed in range(40):
        state = game.start(np.random.default_rng(seed))
        assert walk(state) == state.answer
        assert len({*state.route}) == len(state.route)
        assert len({place for _, place in state.places}) == len(state.places)
        kinds.add(state.kind)
    assert kinds == ({"directions", "turns"} if level > 1 else {"directions"})


def test_the_route_is_drawn_only_if_it_is_asked_for() -> None:
    game = make_game("routes", size=300)
    for seed in range(10):
        state = game.start(np.random.default_rng(seed))
        image = game.images(state)[0].astype(int)
        red = ((image[..., 0] > 180) & (image[..., 1:].max(axis=2) < 100)).sum()
        assert (red > 100) == (state.kind == "turns")
