"""Draw the plots of a calibration page: the effect of both difficulties on each criterion."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter
from PIL import Image

from benchmarks.calibration.checks import READABLE
from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.formatting import SHARES
from benchmarks.calibration.measure import Calibration
from vlmgym.sandbox.core.config import LEVELS

OWN, ALIKE, OTHER, FITTED = "#c8502d", "#e0a088", "#9a9a9a", "#2d6fb4"
"""Colours of the criterion, the criterion on common kinds, the other difficulty's effect, and the fitted reader."""


def draw_plots(calibration: Calibration) -> bytes:
    """Draw both plots as a PNG: reasoning on the left, perception on the right."""
    figure = Figure(figsize=(10, 3.9), dpi=100, layout="constrained")
    play, sight = figure.subplots(1, 2)
    criterion = calibration.spec.criterion
    _line(play, calibration.play_elsewhere, OTHER, "by perception, reasoning 3", ls="--")
    _line(play, calibration.criterion, OWN, "by reasoning, perception 3", lw=2.4)
    _frame(play, "Reasoning", "level", criterion.label)
    if criterion.log:
        play.set_yscale("log")
        play.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    shown = _as_percent if criterion.measure in SHARES else _as_number
    play.yaxis.set_major_formatter(FuncFormatter(shown))
    play.yaxis.set_minor_locator(NullLocator())
    shared, levels = calibration.readings.shared, calibration.readings.levels
    _line(sight, shared["reasoning"], OTHER, "by reasoning, common kinds", ls="--")
    _line(sight, shared["perception"], ALIKE, "by perception, common kinds", ls="--")
    _line(sight, {level: reading.fitted for level, reading in levels.items()}, FITTED, "fitted reader")
    _line(sight, calibration.first_reader, OWN, "level-1 reader", lw=2.4)
    sight.axhline(READABLE, color=FITTED, lw=0.8, ls=":")
    _frame(sight, "Perception", "level", f"{calibration.spec.reading.unit}s read correctly")
    sight.set_ylim(0, 1.04)
    sight.yaxis.set_major_formatter(PercentFormatter(1.0))
    png = io.BytesIO()
    figure.savefig(png, format="png")
    few_colours = io.BytesIO()  # a third of the size without a visible difference
    Image.open(png).convert("RGB").quantize(64).save(few_colours, "PNG", optimize=True)
    return few_colours.getvalue()


def _as_percent(value: float, _: int | None = None) -> str:
    return f"{100 * value:.3g}%"


def _as_number(value: float, _: int | None = None) -> str:
    return f"{value:,.4g}"


def _line(axes: Axes, levels: Mapping[int, Estimate], colour: str, label: str, **style: Any) -> None:
    ordered = sorted(levels)
    means = [levels[level].mean for level in ordered]
    lows, highs = [levels[level].low for level in ordered], [levels[level].high for level in ordered]
    axes.fill_between(ordered, lows, highs, color=colour, alpha=0.18, lw=0)
    axes.plot(ordered, means, "o", color=colour, label=label, **{"ls": "-", "lw": 1.6, "ms": 5, **style})


def _frame(axes: Axes, title: str, across: str, up: str) -> None:
    axes.set_title(title, loc="left", weight="bold")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_xticks(LEVELS)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8.5, loc="best")
