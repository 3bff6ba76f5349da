"""Cumulative reward over turns, drawn from records."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vlmgym.evaluation.record import EpisodeRecord
from vlmgym.evaluation.summary import mean_and_error

_LABELLED = 10
"""Runs that get a line in the legend each; more share one."""


def draw_curves(episodes: Sequence[EpisodeRecord]) -> bytes:
    """A PNG: the cumulative game reward of every episode that is a result, and their mean with its standard error.

    An episode that ended early keeps its score to the right, so that the mean is one over all episodes everywhere; a
    dot marks where it ended.
    """
    longest = max(len(episode.turns) for episode in episodes)
    totals = np.zeros((len(episodes), longest + 1))
    figure = Figure(figsize=(9, 5.4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for i, episode in enumerate(episodes):
        gained = [turn.reward.game for turn in episode.turns]
        totals[i, 1 : len(gained) + 1] = np.cumsum(gained)
        totals[i, len(gained) + 1 :] = totals[i, len(gained)]
        label = f"seed {episode.seed}" if len(episodes) <= _LABELLED else None if i else "single episodes"
        (line,) = axes.plot(range(len(gained) + 1), totals[i, : len(gained) + 1], lw=1.1, alpha=0.55, label=label)
        if episode.terminated:
            axes.plot(len(gained), totals[i, len(gained)], "o", ms=5, color=line.get_color())
    mean = totals.mean(axis=0)
    error = np.array([mean_and_error(column)[1] or 0.0 for column in totals.T])
    turns = np.arange(longest + 1)
    axes.fill_between(turns, mean - error, mean + error, color="black", alpha=0.16, lw=0, label="standard error")
    axes.plot(turns, mean, color="black", lw=2.4, label=f"mean of {len(episodes)} episodes")
    first = episodes[0]
    axes.set_title(
        f"{first.game.id}, {first.policy.name}: {mean[-1]:,.1f} ± {error[-1]:,.1f}", loc="left", weight="bold"
    )
    axes.set_xlabel("turn")
    axes.set_ylabel("cumulative reward")
    axes.set_xlim(0, longest * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()
