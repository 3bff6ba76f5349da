"""Cumulative reward over turns: the mean of episodes and its confidence interval, the same for the PNG and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vlmgym.evaluation.summary import confidence_interval
from vlmgym.records.episode import EpisodeRecord

POINTS = 200
"""Maximum number of intervals between the points of a mean curve."""

Values = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class EpisodeRewards:
    """Rewards of an episode that has a result.

    Attributes:
        rewards: The game's own reward of each turn.
        ended: Whether the game ended the episode, not the turn limit.
    """

    rewards: tuple[float, ...]
    ended: bool

    @classmethod
    def of(cls, episode: EpisodeRecord) -> EpisodeRewards:
        """The rewards of an episode."""
        return cls(tuple(turn.reward.game for turn in episode.turns), episode.terminated)

    @property
    def totals(self) -> Values:
        """The cumulative reward before the first turn, after it, and so on."""
        return np.concatenate([[0.0], np.cumsum(self.rewards)])


@dataclass(frozen=True, slots=True)
class MeanCurve:
    """The mean cumulative reward at some turns.

    Attributes:
        turns: Turns, from 0 to those of the longest episode.
        mean: Mean over all episodes; one that ended early keeps its score.
        interval: Lower and upper end of the 95% confidence interval of the mean, which at the last turn is that of the
            summary's mean score; None for a single episode, and for several stages of a curriculum.
    """

    turns: np.ndarray[Any, np.dtype[np.int64]]
    mean: Values
    interval: tuple[Values, Values] | None


def mean_curve(episodes: Sequence[EpisodeRewards], *, one_stage: bool) -> MeanCurve:
    """Compute the mean curve of at least one episode."""
    longest = max(len(episode.rewards) for episode in episodes)
    turns = np.unique(np.linspace(0, longest, min(longest, POINTS) + 1).round().astype(np.int64))
    totals = np.array([episode.totals[np.minimum(turns, len(episode.rewards))] for episode in episodes])
    mean = totals.mean(axis=0)
    if not one_stage or len(episodes) == 1:
        return MeanCurve(turns, mean, None)
    shares = all(len(episode.rewards) == 1 and episode.ended for episode in episodes)
    intervals = [
        confidence_interval(column.tolist(), within_one=shares) or (middle, middle)
        for column, middle in zip(totals.T, mean)
    ]
    low, high = np.array(intervals).T
    return MeanCurve(turns, mean, (low, high))
