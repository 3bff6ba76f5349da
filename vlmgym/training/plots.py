"""Training curves: read the metrics file and plot it."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from vlmgym.evaluation.curves import new_figure

DRAW_INTERVAL = 20.0
"""Minimum number of seconds between two drawings."""
SMOOTHING = 20
"""Window of the moving average in logged steps; for short curves, a third of their length."""
PANELS = (
    ("reward", "reward per response"),
    ("episode_reward", "reward per episode"),
    ("score", "score of validation episodes"),
    ("perception", "perception accuracy"),
    ("format", "format compliance"),
    ("entropy", "entropy per token (nats)"),
    ("kl", "KL to the reference (nats per token)"),
    ("grad_norm", "gradient norm"),
    ("explained_variance", "explained variance of the critic"),
)
"""Metrics to plot, with their panel titles."""


def read_curve(path: Path) -> list[dict[str, float]]:
    """Read the metrics of each step from a `curve.jsonl`, ignoring a truncated last line; return [] without a file."""
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


class CurvePlot:
    """An image of the curves, redrawn at most once per `DRAW_INTERVAL` and at the end."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        """Create a plot; `write` is called with each new PNG."""
        self._write = write
        self._drawn = time.monotonic()

    def update(self, rows: Sequence[Mapping[str, float]], final: bool = False) -> None:
        """Redraw the metrics of all steps if `DRAW_INTERVAL` has passed since the last drawing, or if `final`."""
        if rows and (final or time.monotonic() > self._drawn + DRAW_INTERVAL):
            self._drawn = time.monotonic()
            self._write(draw_curves(rows))


def draw_curves(rows: Sequence[Mapping[str, float]]) -> bytes:
    """Draw a PNG with one panel per metric."""
    panels = [(name, title) for name, title in PANELS if any(name in row for row in rows)]
    columns = min(4 if len(panels) > 6 else 3, len(panels))
    lines = -(-len(panels) // columns)
    width, height = 4.4 * columns, 3.0 * lines  # inches
    figure = new_figure(figsize=(width, height), dpi=110)
    # Fixed margins: fitting them to the labels would double the drawing time, and training waits for the drawing.
    figure.subplots_adjust(0.6 / width, 0.5 / height, 1 - 0.15 / width, 1 - 0.35 / height, wspace=0.25, hspace=0.42)
    for number, (name, title) in enumerate(panels, 1):
        axes = figure.add_subplot(lines, columns, number)
        steps = np.array([row["step"] for row in rows if name in row])
        values = np.array([row[name] for row in rows if name in row])
        axes.plot(steps, values, lw=0.9, alpha=0.4, color="tab:blue")
        window = max(1, min(SMOOTHING, len(values) // 3))
        smooth = np.convolve(values, np.ones(window) / window, mode="valid")
        axes.plot(steps[window - 1 :], smooth, lw=2.2, color="tab:blue", marker="." if len(values) < SMOOTHING else "")
        axes.set_title(title, loc="left", fontsize=10, weight="bold")
        axes.set_xlabel("step", fontsize=9)
        axes.tick_params(labelsize=9)
        axes.yaxis.set_major_formatter("{x:.3g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()
