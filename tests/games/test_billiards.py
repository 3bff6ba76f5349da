"""Billiards: paths of balls, in small steps and by hand, and questions with one answer."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.sandbox.games.billiards import HEIGHT, POCKET, WIDTH, Spot, roll

RADIUS = POCKET / 20


def simulate(ball: Spot, way: Spot, pockets: tuple[Spot, ...], bounces: int) -> int | None:
    """Move a ball in small steps; return the index of the pocket that it meets, or None."""
    x, y = map(float, ball)
    dx, dy = (step / math.hypot(*way) / 100 for step in way)
    while True:
        x, y = x + dx, y + dy
        meets_side, meets_end = not 0 < x < WIDTH, not 0 < y < HEIGHT
        if meets_side or meets_end:
            for number, pocket in enumerate(pockets):
                if math.dist((x, y), pocket) < RADIUS:
                    return number
            if not bounces:
                return None
            bounces -= 1
            dx, dy = -dx if meets_side else dx, -dy if meets_end else dy


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_one_answer_is_right(level: int) -> None:
    game, answers, kinds = make_game("billiards", reasoning=level), Counter[int](), set()
    bounces = game.config.bounces
    for seed in range(20):
        state = game.start(np.random.default_rng(seed))
        arrow, others = state.arrows[0], list(state.arrows)
        if state.kind == "pocket":
            assert simulate(state.ball, arrow, state.pockets, bounces) == state.answer - 1
        else:
            arrow = others.pop(state.answer - 1)
            assert simulate(state.ball, arrow, state.pockets, bounces) == state.target
            assert all(simulate(state.ball, other, state.pockets, bounces) != state.target for other in others)
        assert not bounces or simulate(state.ball, arrow, state.pockets, bounces - 1) is None
        answers[state.answer] += 1
        kinds.add(state.kind)
    assert ("shot" in kinds) == game.config.shots
    assert max(answers.values()) <= 12


def test_paths_by_hand() -> None:
    pockets = ((7, 0), (14, 5), (0, 5))
    assert roll((3, 5), (3, 0), pockets, 0) == (1, 0)
    assert roll((3, 5), (-3, 0), pockets, 2) == (2, 0)
    assert roll((3, 4), (2, -2), pockets, 0) == (0, 0)
    assert roll((6, 7), (2, 2), pockets, 2) == (0, 2)
    assert roll((4, 4), (0, 3), pockets, 3) == (None, 3)


def test_paths_that_are_not_clear_are_rejected() -> None:
    assert roll((3, 3), (-2, -2), (), 5) is None  # into a corner
    assert roll((5, 5), (3, 0), ((14, 4),), 0) == (None, 0)
    assert roll((5, 5), (0, -3), ((6, 0),), 0) == (None, 0)
    assert roll((6, 5), (-1, -3), ((5, 0),), 0) is None  # meets the cushion 2/3 from the middle of the pocket
