"""Cumulative reward over turns, drawn from records."""

from __future__ import annotations

import io
from collections.abc import Iterable

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vlmgym.errors import truncate
from vlmgym.evaluation.reward_curve import EpisodeRewards, mean_curve
from vlmgym.evaluation.table import ALL_STAGES
from vlmgym.records.episode import EpisodeRecord

_LABELLED = 10
"""Maximum number of episodes that each get a line in the legend; more share one."""


def draw_curves(episodes: Iterable[EpisodeRecord], subtitle: str = "") -> bytes:
    """A PNG: the cumulative game reward of every episode, their mean and its 95% confidence interval.

    Episodes at several stages of a curriculum have a mean without an interval, and the title says so. An episode that
    ended early keeps its score to the right, so that the mean is over all episodes everywhere; a dot marks its end.

    Args:
        episodes: At least one, all of the same game and policy, with a result. Read one after another, not kept.
        subtitle: A second, smaller line of the title; what does not fit is left out.
    """
    seeds, results, stages = [], [], set()
    for episode in episodes:
        title = f"{episode.game.id}, {episode.policy.label}"
        stages.add(episode.stage)
        seeds.append(episode.seed)
        results.append(EpisodeRewards.of(episode))
    figure = Figure(figsize=(9, 5.4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for i, (seed, one) in enumerate(zip(seeds, results)):
        label = f"seed {seed}" if len(results) <= _LABELLED else None if i else "single episodes"
        totals = one.totals
        (line,) = axes.plot(range(len(totals)), totals, lw=1.1, alpha=0.55, label=label)
        if one.ended:
            axes.plot(len(totals) - 1, totals[-1], "o", ms=5, color=line.get_color())
    curve = mean_curve(results, one_stage=len(stages) == 1)
    told = f"mean {curve.mean[-1]:,.2f}"
    if curve.interval is not None:
        low, high = curve.interval
        axes.fill_between(curve.turns, low, high, color="black", alpha=0.16, lw=0, label="95% interval of the mean")
        if low[-1] < high[-1]:
            told += f" (95% interval {low[-1]:,.2f} to {high[-1]:,.2f})"
    if len(stages) > 1:
        told += ALL_STAGES
    axes.plot(curve.turns, curve.mean, color="black", lw=2.4, label=f"mean of {len(results)} episodes")
    axes.set_title(f"{title}: {told}", loc="left", weight="bold", pad=20)
    axes.text(0, 1.015, truncate(subtitle, 100), transform=axes.transAxes, fontsize=9)
    axes.set_xlabel("turn")
    axes.set_ylabel("cumulative reward")
    axes.set_xlim(0, curve.turns[-1] * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None, "Title": f"{title}, {subtitle}"})
    return png.getvalue()
