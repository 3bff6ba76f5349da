"""Invalid arguments raise a one-line `UsageError` and change nothing."""

import copy
import pickle
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

import vlmgym
from vlmgym import game_ids, make_game, make_vec
from vlmgym.errors import UsageError
from vlmgym.evaluation import EvalConfig, evaluate
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.workers.pool import WORKERS_PER_CORE, available_cores

BAD = ["x", b"x", 1.5, float("nan"), -1, 10**30, [0, 0, 0], [None, "x"], {"a": 1}, object(), int, np.zeros((2, 2))]
"""Values of kinds that users pass by mistake."""


def check_rejected(call: Callable[[], Any]) -> None:
    """Check that a call raises a `UsageError` with a one-line message."""
    with pytest.raises(UsageError) as error:
        call()
    assert str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "options",
    [
        {"game": "chess"}, {"game": []}, {"num_envs": 0}, {"num_workers": -1}, {"perception": 6}, {"reasoning": "3"},
        {"reward": 1.0}, {"autoreset_mode": "Never"}, {"max_episode_steps": 0}, {"timeout": 0}, {"size": 10**30},
        {"rows": 2.5}, {"no_such_field": 1},
    ],
)  # fmt: skip
def test_make_vec_rejects_invalid_values(options: dict[str, Any]) -> None:
    check_rejected(lambda: make_vec(**{"game": "2048", "num_workers": 0, **options}))


EPISODES: dict[str, Callable[[Any], Any]] = {
    "game": lambda value: Episode(value, 0),
    "seed": lambda value: Episode(make_game("2048"), value),
    "response": lambda value: vlmgym.Episode("2048", 0).respond(value),
    "snapshot": lambda value: Episode.restore(make_game("2048"), value),
    "environment options": lambda value: GameEnv("2048").reset(options=value),
}


@pytest.mark.parametrize("name", EPISODES)
def test_episode_rejects_invalid_values(name: str) -> None:
    for value in BAD:
        if not ((name == "seed" and value is BAD[5]) or (name == "response" and isinstance(value, str))):
            check_rejected(partial(EPISODES[name], value))


@pytest.mark.parametrize("game_id", game_ids())
def test_invalid_actions_are_illegal(game_id: str) -> None:
    game = make_game(game_id)
    for value in BAD:
        if not (isinstance(value, str) and isinstance(game.answer.space, gymnasium.spaces.Text)):
            assert Episode(game, 0).act(value).outcome is Outcome.ILLEGAL


def test_vector_environments_cannot_be_copied() -> None:
    with closing(make_vec("2048", 2, 0, size=64)) as envs:
        for copied in (pickle.dumps, copy.deepcopy):
            check_rejected(partial(copied, envs))


def test_too_many_workers() -> None:
    most = WORKERS_PER_CORE * available_cores()
    for call in (
        lambda: make_vec("2048", 10**5, most + 1, size=64),
        lambda: evaluate("2048", "random", 10**5, workers=most + 1),
        lambda: EvalConfig(workers=10**5),
    ):
        with pytest.raises(UsageError, match=f"workers must be at most {most} "):
            call()


@pytest.mark.parametrize(
    "options",
    [
        {"episodes": "x"}, {"episodes": 0}, {"concurrency": None}, {"workers": "x"}, {"backend": ["ray"]},
        {"reward": "x"}, {"budget": 5}, {"max_turns": 0}, {"seed": -1},
        {"history": -1}, {"observation": "picture"},
    ],
)  # fmt: skip
def test_evaluate_rejects_invalid_values(options: dict[str, Any]) -> None:
    check_rejected(lambda: evaluate("2048", "random", **options))
