"""Snake: growth, crashes, the tail, and the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from tests.games.puzzles import scores
from vlmgym import make_game
from vlmgym.errors import IllegalAction, StateError, UsageError
from vlmgym.sandbox.games.snake.game import Snake, SnakeConfig, SnakeState

UP, RIGHT, DOWN, LEFT = range(4)
GAME = Snake(SnakeConfig(rows=4, columns=5, food=6))
STATE = SnakeState(((1, 2), (1, 1), (1, 0)), (1, 4))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_body_follows_the_head() -> None:
    step = GAME.step(STATE, DOWN, rng())
    assert step.state.body == ((2, 2), (1, 2), (1, 1))
    assert (step.reward, step.terminated, step.state.food) == (0.0, False, STATE.food)
    with pytest.raises(IllegalAction, match="cannot turn back left"):
        GAME.step(STATE, LEFT, rng())
    assert GAME.legal_actions(STATE) == (UP, RIGHT, DOWN)


def test_food_makes_the_snake_longer() -> None:
    near = GAME.step(STATE, RIGHT, rng()).state
    step = GAME.step(near, RIGHT, rng())
    assert step.state.body == ((1, 4), (1, 3), (1, 2), (1, 1))
    assert step.reward == pytest.approx(1 / 6)
    assert step.state.food not in step.state.body


@pytest.mark.parametrize(
    ("body", "action"),
    [
        (((0, 2), (1, 2), (2, 2)), UP),
        (((1, 4), (1, 3), (1, 2)), RIGHT),
        (((1, 1), (1, 2), (2, 2), (2, 1), (2, 0)), DOWN),
    ],
)
def test_the_wall_and_the_body_end_the_game(body: tuple[tuple[int, int], ...], action: int) -> None:
    step = GAME.step(SnakeState(body, (3, 4)), action, rng())
    assert (step.reward, step.terminated, step.state.crashed, step.state.body) == (0.0, True, True, body)
    assert GAME.legal_actions(step.state) == ()
    assert "head" in GAME.describe(step.state)
    assert "crashed" not in GAME.describe(step.state)  # not a word of the prompt


def test_the_head_may_follow_the_tail() -> None:
    square = SnakeState(((1, 1), (1, 2), (2, 2), (2, 1)), (3, 4))
    assert GAME.step(square, DOWN, rng()).state.body == ((2, 1), (1, 1), (1, 2), (2, 2))


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_the_oracle_eats_everything(level: int) -> None:
    assert scores(make_game("snake", reasoning=level), range(3)) == pytest.approx([1.0] * 3)


def test_food_appears_in_every_empty_cell() -> None:
    seen = {GAME.start(np.random.default_rng(seed)).food for seed in range(400)}
    assert len(seen) == 20


def test_bad_states_and_configs() -> None:
    for body, food in (
        (((1, 2), (1, 1)), (0, 0)),
        (((1, 2), (1, 0), (1, 1)), (0, 0)),
        (((1, 4), (1, 5), (1, 6)), (0, 0)),
        (STATE.body, (1, 1)),
    ):
        with pytest.raises(StateError):
            GAME.check_state(SnakeState(body, food))
    with pytest.raises(UsageError, match="food must be at most 13"):
        make_game("snake", rows=4, columns=4, food=14)
