"""Cumulative reward over turns, drawn from records."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vlmgym.errors import shorten
from vlmgym.evaluation.record import EpisodeRecord
from vlmgym.evaluation.summary import mean_and_error
from vlmgym.evaluation.table import ALL_STAGES

_LABELLED = 10
"""Runs that get a line in the legend each; more share one."""


@dataclass(frozen=True, slots=True)
class _Curve:
    seed: int
    terminated: bool
    totals: np.ndarray[Any, np.dtype[np.float64]]
    """The cumulative reward before the first turn, after it, ..."""

    @property
    def turns(self) -> int:
        return len(self.totals) - 1


def draw_curves(episodes: Iterable[EpisodeRecord], subtitle: str = "") -> bytes:
    """A PNG: the cumulative game reward of every episode that is a result, and their mean with its standard error.

    The mean of episodes at several stages of a curriculum has no error, and the title says that it is one.

    An episode that ended early keeps its score to the right, so that the mean is one over all episodes everywhere; a
    dot marks where it ended.

    Args:
        episodes: At least one, all of the same game and policy; they are read one after another, and not kept.
        subtitle: A second, smaller line of the title; what does not fit is left out.
    """
    curves, stages = [], set()
    for episode in episodes:
        title = f"{episode.game.id}, {episode.policy.label}"
        stages.add(episode.stage)
        gained = [0.0, *(turn.reward.game for turn in episode.turns)]
        curves.append(_Curve(episode.seed, episode.terminated, np.cumsum(gained)))
    longest = max(curve.turns for curve in curves)
    totals = np.array([np.pad(curve.totals, (0, longest - curve.turns), mode="edge") for curve in curves])
    figure = Figure(figsize=(9, 5.4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for i, curve in enumerate(curves):
        label = f"seed {curve.seed}" if len(curves) <= _LABELLED else None if i else "single episodes"
        (line,) = axes.plot(range(curve.turns + 1), curve.totals, lw=1.1, alpha=0.55, label=label)
        if curve.terminated:
            axes.plot(curve.turns, curve.totals[-1], "o", ms=5, color=line.get_color())
    mean = totals.mean(axis=0)
    turns = np.arange(longest + 1)
    if len(stages) == 1:
        error = np.array([mean_and_error(column)[1] or 0.0 for column in totals.T])
        axes.fill_between(turns, mean - error, mean + error, color="black", alpha=0.16, lw=0, label="standard error")
        came_to = f"{mean[-1]:,.1f} ± {error[-1]:,.1f}"
    else:
        came_to = f"{mean[-1]:,.1f}{ALL_STAGES}"
    axes.plot(turns, mean, color="black", lw=2.4, label=f"mean of {len(curves)} episodes")
    axes.set_title(f"{title}: {came_to}", loc="left", weight="bold", pad=20)
    axes.text(0, 1.015, shorten(subtitle, 100), transform=axes.transAxes, fontsize=9)
    axes.set_xlabel("turn")
    axes.set_ylabel("cumulative reward")
    axes.set_xlim(0, longest * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None, "Title": f"{title}, {subtitle}"})
    return png.getvalue()
