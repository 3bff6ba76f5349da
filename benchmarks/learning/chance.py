"""Rewards of policies that do not look at the image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vlmgym.rollout.states import action_rewards
from vlmgym.training.states import EpisodeRollout


def without_looking(episodes: Sequence[EpisodeRollout]) -> tuple[float, float]:
    """Return the mean rewards of random answers and of the best constant answer.

    Args:
        episodes: Episodes of one game, each in the state to respond to.

    Raises:
        UsageError: The game's actions cannot be enumerated.
    """
    game, reward = episodes[0].setup.game, episodes[0].setup.settings.reward
    states = [episode.episode.state for episode in episodes]
    earned = np.array([list(action_rewards(game, state, reward)) for state in states])
    return float(earned.mean()), float(earned.mean(axis=0).max())
