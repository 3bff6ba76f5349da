"""Shared by the pages: formatting of means with intervals, and plots of curves and of shares by arm and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vlmgym.statistics import confidence_interval

COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:gray", "tab:brown", "tab:pink")
SMOOTHED = 10
"""Window of the moving average, in steps."""


def with_interval(mean: float, interval: tuple[float, float] | None) -> str:
    """Format a mean and its confidence interval, if any."""
    return f"{mean:.2f}" if interval is None else f"{mean:.2f} ({interval[0]:.2f} to {interval[1]:.2f})"


def share(values: Sequence[float]) -> str:
    """Format a mean of shares and its 95% interval."""
    low, high = confidence_interval(values, unit_interval={*values} <= {0.0, 1.0}) or (np.nan, np.nan)
    return f"{np.mean(values):.1%} ({low:.1%} to {high:.1%})"


def draw_arm(axes: Axes, x: float, result: Mapping[str, Any], colour: str) -> None:
    """Draw the right responses of an arm with a seed: sampled as a filled point, greedy as an empty one."""
    axes.plot([x, x], result["states"]["success_ci"], color=colour, lw=1.4)
    axes.plot(x, result["states"]["success"], "o", ms=5, color=colour)
    axes.plot(x, result["greedy"]["success"], "o", ms=5, mfc="none", color=colour, alpha=0.7)


def style_shares(axes: Axes) -> None:
    """Style axes whose values are shares."""
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, axis="y")


def draw_curves(
    path: Path, curves: Sequence[tuple[str, Sequence[float]]], axis: str, level: tuple[str, float] | None = None
) -> None:
    """Plot smoothed curves over steps.

    Args:
        path: Image file.
        curves: Name and values of each curve; curves with the same name share a colour.
        axis: Label of the y axis.
        level: Name and value of a horizontal line.
    """
    figure = Figure(figsize=(7, 4), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    colours = dict(zip(dict.fromkeys(name for name, _ in curves), COLOURS))
    named: set[str] = set()
    for name, numbers in curves:
        smooth = np.convolve(numbers, np.ones(SMOOTHED) / SMOOTHED, mode="valid")
        label = None if name in named else name
        axes.plot(np.arange(len(smooth)) + SMOOTHED, smooth, color=colours[name], lw=1.8, alpha=0.85, label=label)
        named.add(name)
    if level is not None:
        axes.axhline(level[1], color="black", lw=0.8, ls=":", label=level[0])
    axes.set_xlabel("step")
    axes.set_ylabel(axis)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    figure.savefig(path)
