"""Snake: growth, crashes and the tail."""

from __future__ import annotations

import numpy as np
import pytest

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.snake import Body, Snake, SnakeConfig, SnakeState

UP, RIGHT, DOWN, LEFT = range(4)
GAME = Snake(SnakeConfig(rows=4, columns=5, food=6))
STATE = SnakeState(((1, 2), (1, 1), (1, 0)), (1, 4))


@pytest.mark.parametrize(
    ("body", "action", "after"),
    [
        (STATE.body, DOWN, ((2, 2), (1, 2), (1, 1))),
        (((1, 3), (1, 2), (1, 1)), RIGHT, ((1, 4), (1, 3), (1, 2), (1, 1))),  # eats
        (((1, 1), (1, 2), (2, 2), (2, 1)), DOWN, ((2, 1), (1, 1), (1, 2), (2, 2))),  # follows its tail
        (((0, 2), (1, 2), (2, 2)), UP, None),
        (((2, 4), (2, 3), (2, 2)), RIGHT, None),
        (((1, 1), (1, 2), (2, 2), (2, 1), (2, 0)), DOWN, None),
    ],
)
def test_the_body_follows_the_head_until_it_crashes(body: Body, action: int, after: Body | None) -> None:
    state = SnakeState(body, STATE.food)
    step = GAME.step(state, action, np.random.default_rng(0))
    assert (step.state.body, step.state.crashed) == (after or body, not after)
    assert step.reward == pytest.approx((len(step.state.body) - len(body)) / 6)
    assert (step.state.food == STATE.food) is (len(step.state.body) == len(body))
    assert step.state.food not in step.state.body
    assert GAME.legal_actions(step.state) == () if step.state.crashed else GAME.legal_actions(state)
    assert "head" in GAME.describe(step.state)
    assert "crashed" not in GAME.describe(step.state)  # the prompt does not use this word


def test_the_head_cannot_turn_back() -> None:
    with pytest.raises(IllegalAction, match="cannot turn back left"):
        GAME.step(STATE, LEFT, np.random.default_rng(0))
    assert GAME.legal_actions(STATE) == (UP, RIGHT, DOWN)


def test_food_appears_in_every_empty_cell() -> None:
    seen = {GAME.start(np.random.default_rng(seed)).food for seed in range(400)}
    assert len(seen) == 20
