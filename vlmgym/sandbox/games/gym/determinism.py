"""Test whether an environment is deterministic, that is, the same seed and actions give the same results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from vlmgym.sandbox.games.gym.making import Env, make_env

STEPS = 40
"""Number of steps over which two environments are compared."""
RENDERED = (0, 1, STEPS)
"""Steps after which frames are compared (0: the reset), in addition to the last frame of an episode.

Other frames are not compared, because rendering takes most of the time.
"""


@lru_cache(maxsize=256)
def is_deterministic(env_id: str, options: tuple[str, ...], sticky: float) -> bool:
    """Return whether a new and a used environment give the same results for the same seed and actions."""
    used, new = make_env(env_id, options, sticky), make_env(env_id, options, sticky)
    if used.spec is not None and used.spec.nondeterministic:
        return False
    for _ in _play(used, 1):
        pass
    return all(data_equivalence(one, other) for one, other in zip(_play(used, 0), _play(new, 0)))


def _play(env: Env, seed: int) -> Iterator[Any]:
    """Play up to `STEPS` random actions in one episode; yield the results of the reset and of each step."""
    env.action_space.seed(seed)
    yield env.reset(seed=seed)[0], env.render()
    for step in range(1, STEPS + 1):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        ended = bool(terminated or truncated)
        frame = env.render() if ended or step in RENDERED else np.zeros(0)
        yield observation, float(reward), ended, frame
        if ended:
            return
