"""Shared by the pages: formatting of means with intervals, and plots of curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:gray", "tab:brown", "tab:pink")
SMOOTHED = 10
"""Window of the moving average, in steps."""


def with_interval(mean: float, interval: tuple[float, float] | None) -> str:
    """Format a mean and its confidence interval, if any."""
    return f"{mean:.2f}" if interval is None else f"{mean:.2f} ({interval[0]:.2f} to {interval[1]:.2f})"


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
