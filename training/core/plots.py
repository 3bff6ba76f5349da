"""Curves of a training run as an image, and the file of numbers that they are drawn from."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

DRAW_EVERY = 20.0
"""Seconds between drawings."""
SMOOTHING = 20
"""Steps whose mean is the thick line, at most: a third of those that there are."""
PANELS = (
    ("reward", "reward of an answer"),
    ("episode_reward", "reward of an episode"),
    ("score", "score of held-out episodes"),
    ("perception", "share of cells seen right"),
    ("format", "share of answers in form"),
    ("entropy", "entropy of a token, nats"),
    ("kl", "divergence from the reference, nats a token"),
    ("grad_norm", "length of the gradient"),
    ("explained", "variance that the critic explains"),
)
"""What is drawn of a step's numbers, and what it is called."""


def read_rows(path: Path) -> list[dict[str, float]]:
    """The steps that were written; a torn last line is none."""
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
    return rows


def draw_curves(rows: Sequence[Mapping[str, float]]) -> bytes:
    """A PNG with a panel for each number that steps have."""
    panels = [(name, title) for name, title in PANELS if any(name in row for row in rows)]
    columns = min(4 if len(panels) > 6 else 3, len(panels))
    lines = -(-len(panels) // columns)
    wide, high = 4.4 * columns, 3.0 * lines  # inches
    figure = Figure(figsize=(wide, high), dpi=110)
    # Fixed margins: a layout that fits them to each label takes as long again as the drawing, which a run pays for.
    figure.subplots_adjust(0.6 / wide, 0.5 / high, 1 - 0.15 / wide, 1 - 0.35 / high, wspace=0.25, hspace=0.42)
    for place, (name, title) in enumerate(panels, 1):
        axes = figure.add_subplot(lines, columns, place)
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
