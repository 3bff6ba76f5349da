"""Tracking: following each ball to its nearest neighbour in the next image gives the answer."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.tracking import Tracking, TrackingState

RNG = np.random.default_rng(0)


def follow(state: TrackingState, shuffled: np.random.Generator) -> int:
    """Answer the question from frames whose balls are in no particular order."""
    frames = [shuffled.permutation(frame).tolist() for frame in state.path]
    ends = []
    for start in frames[0]:
        at = start
        for frame in frames[1:]:
            at = min(frame, key=lambda point: math.dist(point, at))
        ends.append((start, at))
    assert len({tuple(end) for _, end in ends}) == len(ends)
    if state.kind == "count":
        return sum((start[0] < 500) != (end[0] < 500) for start, end in ends)
    (last,) = (end for start, end in ends if tuple(start) == state.path[0][0])
    return state.numbers[[list(point) for point in state.path[-1]].index(last)]


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_nearest_neighbours_give_the_answer(level: int) -> None:
    game, answers = make_game("tracking", reasoning=level), Counter[str]()
    for seed in range(30):
        state = game.start(np.random.default_rng(seed))
        assert follow(state, np.random.default_rng(seed)) == state.answer
        answers[f"{state.kind} {state.answer}"] += 1
    assert len(answers) >= game.config.choices
    assert any(name.startswith("count") for name in answers) == game.config.counting
    assert max(answers.values()) <= 20


def test_the_marked_ball_is_red_in_the_first_image_only() -> None:
    game = make_game("tracking", reasoning=1, size=200)
    first, last = game.images(game.start(np.random.default_rng(1)))
    red = [(image[..., 0].astype(int) - image[..., 2] > 100).sum() for image in (first, last)]
    assert red[0] > 200
    assert red[1] == 0


def test_counts_may_be_zero_but_balls_are_numbered_from_one() -> None:
    game = Tracking()
    states = [game.start(np.random.default_rng(seed)) for seed in range(10)]
    for state in states:
        assert game.accepted(state) == range(state.kind == "follow", 5)
        if state.kind == "follow":
            with pytest.raises(IllegalAction, match="must be 1 to 4, got 0"):
                game.step(state, 0, RNG)
        else:
            game.step(state, 0, RNG)
    assert len({state.kind for state in states}) == 2
