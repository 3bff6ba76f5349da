"""Cumulative reward over turns: mean curves with confidence intervals, and their plot."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from vlmgym.errors import truncate
from vlmgym.evaluation.tables import ALL_STAGES
from vlmgym.runs.record import EpisodeRecord
from vlmgym.statistics import confidence_interval

POINTS = 200
"""Maximum number of segments in a mean curve."""

Values = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class EpisodeRewards:
    """Rewards of an episode with a result.

    Attributes:
        rewards: Game reward of each turn.
        ended: True if the game, not the turn limit, ended the episode.
    """

    rewards: tuple[float, ...]
    ended: bool

    @classmethod
    def of(cls, episode: EpisodeRecord) -> EpisodeRewards:
        """Extract the rewards of an episode."""
        return cls(tuple(turn.reward.game for turn in episode.turns), episode.terminated)

    @property
    def totals(self) -> Values:
        """Cumulative reward before the first turn and after each turn."""
        return np.array([0.0, *accumulate(self.rewards)])  # 20,000 short episodes: five times as fast as np.cumsum


@dataclass(frozen=True, slots=True)
class MeanCurve:
    """Mean cumulative reward over turns.

    Attributes:
        turns: Turns at which the curve is computed, from 0 to the length of the longest episode.
        mean: Mean over all episodes at each of these turns; episodes that ended early keep their final score.
        interval: Lower and upper bounds of the 95% confidence interval of the mean at each of these turns; both equal
            the mean where the interval is undefined because all values are equal. The last bounds are
            `Summary.score_ci`, unless that is None. None for a single episode, or for several stages of a curriculum.
    """

    turns: np.ndarray[Any, np.dtype[np.int64]]
    mean: Values
    interval: tuple[Values, Values] | None


def mean_curve(episodes: Sequence[EpisodeRewards], *, one_stage: bool) -> MeanCurve:
    """Compute the mean curve of at least one episode; `one_stage` is False if they span several curriculum stages."""
    longest = max(len(episode.rewards) for episode in episodes)
    turns = np.unique(np.linspace(0, longest, min(longest, POINTS) + 1).round().astype(np.int64))
    totals = np.array([episode.totals[np.minimum(turns, len(episode.rewards))] for episode in episodes])
    mean = totals.mean(axis=0)
    if not one_stage or len(episodes) == 1:
        return MeanCurve(turns, mean, None)
    shares = all(len(episode.rewards) == 1 and episode.ended for episode in episodes)
    intervals = [
        confidence_interval(column.tolist(), unit_interval=shares and turn > 0) or (middle, middle)
        for turn, column, middle in zip(turns.tolist(), totals.T, mean)
    ]
    low, high = np.array(intervals).T
    return MeanCurve(turns, mean, (low, high))


_MAX_LABELS = 10
"""Maximum number of episodes with a legend entry each; if there are more, they all share one entry."""


def draw_curves(episodes: Iterable[EpisodeRecord], subtitle: str = "") -> bytes:
    """Plot the cumulative game reward of all episodes, their mean, and its 95% confidence interval, as a PNG.

    The mean is always over all episodes: those that ended early keep their score. A dot marks an episode that the game
    ended, rather than the turn limit. There is no interval for a single episode, or for several stages of a curriculum.
    """
    seeds, results, stages = [], [], set()
    for episode in episodes:
        title = f"{episode.game.id}, {episode.policy.label}"
        stages.add(episode.stage)
        seeds.append(episode.seed)
        results.append(EpisodeRewards.of(episode))
    from matplotlib.collections import LineCollection  # slow to import, and not needed by worker processes
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    lines = [np.column_stack([np.arange(len(result.rewards) + 1), result.totals]) for result in results]
    colours = [f"C{i % 10}" for i in range(len(lines))]
    style: dict[str, Any] = {"linewidths": 1.1, "alpha": 0.55}
    if len(lines) <= _MAX_LABELS:
        for seed, line, colour in zip(seeds, lines, colours):
            axes.add_collection(LineCollection([line], colors=colour, label=f"seed {seed}", **style))
    else:  # a line of its own for each of 10,000 episodes would take 350 MB
        axes.add_collection(LineCollection(lines, colors=colours, label="single episodes", **style))
    ends = [(*line[-1], colour) for line, colour, result in zip(lines, colours, results) if result.ended]
    if ends:
        turns, totals, end_colours = zip(*ends)
        axes.scatter(turns, totals, s=25, c=end_colours, zorder=2)
    curve = mean_curve(results, one_stage=len(stages) == 1)
    summary = f"mean {curve.mean[-1]:,.2f}"
    if curve.interval is not None:
        low, high = curve.interval
        axes.fill_between(curve.turns, low, high, color="black", alpha=0.16, lw=0, label="95% interval of the mean")
        if low[-1] < high[-1]:
            summary += f" (95% interval {low[-1]:,.2f} to {high[-1]:,.2f})"
    if len(stages) > 1:
        summary += ALL_STAGES
    axes.plot(curve.turns, curve.mean, color="black", lw=2.4, label=f"mean of {len(results)} episodes")
    axes.set_title(f"{title}: {summary}", loc="left", weight="bold", pad=20)
    axes.text(0, 1.015, truncate(subtitle, 100), transform=axes.transAxes, fontsize=9)
    axes.set_xlabel("turn")
    axes.set_ylabel("cumulative reward")
    axes.set_xlim(0, curve.turns[-1] * 1.02)
    axes.locator_params(axis="x", integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None, "Title": f"{title}, {subtitle}"})
    return png.getvalue()
