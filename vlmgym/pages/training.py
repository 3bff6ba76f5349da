"""Metrics of a training, of `vlmgym train` or EasyR1, from its folder; for its page and for plots."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

import numpy as np

from vlmgym.pages.document import cell, number_cell, rounded

CURVE, SFT_CURVE = "curve.jsonl", "sft_curve.jsonl"
SMOOTHING = 20
"""Window of the moving average in logged steps; for short curves, a third of their length."""
POINTS = 1000
"""Maximum number of points of a curve on the page."""
RECENT = 600.0
"""Seconds since the last step within which a training of EasyR1, which holds no lock, counts as running."""
PANELS = (
    ("reward", "reward per response"),
    ("episode_reward", "reward per episode"),
    ("score", "score of validation episodes"),
    ("success", "right responses"),
    ("pass_at_n", "states with a right response (pass@n)"),
    ("harmonic_success", "harmonic mean over states"),
    ("perception", "perception accuracy"),
    ("reasoning", "true statements of the reasoning"),
    ("format", "format compliance"),
    ("entropy", "entropy per token (nats)"),
    ("kl", "KL to the reference (nats per token)"),
    ("teacher_kl", "KL to the teacher (nats per token)"),
    ("expert_loss", "loss on the expert's responses (nats per token)"),
    ("grad_norm", "gradient norm"),
    ("gradient_cosine", "cosine of half-batch gradients"),
    ("explained_variance", "explained variance of the critic"),
)
"""Metrics to plot, with their panel titles."""
EASYR1_PANELS = {
    "reward/total": "reward",
    "val/score": "score",
    "signal/success": "success",
    "signal/pass_at_n": "pass_at_n",
    "signal/harmonic_success": "harmonic_success",
    "reward/perception": "perception",
    "reward/reasoning": "reasoning",
    "reward/format": "format",
    "actor/grad_norm": "grad_norm",
    "critic/vf_explained_var": "explained_variance",
}
"""EasyR1's names of the metrics to plot, and the names of the same metrics in local training."""


def read_curve(path: Path) -> list[dict[str, float]]:
    """Read the metrics of each step from a `curve.jsonl`, ignoring a truncated last line; return [] without a file."""
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError):
                break
    return rows


def smooth(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the moving average of a curve, which is shorter by its window - 1."""
    window = max(1, min(SMOOTHING, len(values) // 3))
    return np.convolve(values, np.ones(window) / window, mode="valid")


@dataclass(frozen=True)
class TrainingFolder:
    """The folder of a training, which may be running.

    Attributes:
        name: Path of the folder in the folder of the library.
        folder: The folder.
        locked: Whether a process holds the lock of the folder.
    """

    COLUMNS: ClassVar = (
        "training",
        "algorithm",
        "model",
        "step",
        "reward",
        "right",
        "s per step",
        "state",
        "last step",
    )

    name: str
    folder: Path
    locked: bool

    @cached_property
    def _curve(self) -> Path:
        curve, sft = self.folder / CURVE, self.folder / SFT_CURVE
        has_steps = curve.exists() and curve.stat().st_size > 0  # a trainer creates the file before the first step
        return curve if has_steps or not sft.exists() else sft

    @property
    def _in_sft(self) -> bool:
        return self._curve.name == SFT_CURVE

    @cached_property
    def rows(self) -> list[dict[str, float]]:
        """Numeric metrics of each step, under the names of local training; SFT before the first step if there is none.

        A file with anything else is a stranger's: its lines are left out.
        """
        rows = []
        for row in read_curve(self._curve):
            if isinstance(row, dict):
                numbers = {
                    EASYR1_PANELS.get(name, name): float(value)
                    for name, value in row.items()
                    if isinstance(value, int | float) and abs(value) < 1e100
                }
                if self._in_sft:
                    numbers.pop("seconds", None)  # since the start, not of the step
                if "step" in numbers:
                    rows.append(numbers)
        return rows

    @cached_property
    def settings(self) -> dict[str, str]:
        """Options of the training by name, as text; empty for EasyR1."""
        try:
            settings = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))["settings"]
            chosen = {name: settings.get(name) for name in ("algorithm", "preset", "games", "steps", "seed")}
            chosen["model"] = settings["model"]["model"]
            chosen["sft.steps"] = settings.get("sft", {}).get("steps")
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in chosen.items() if value}

    @property
    def state(self) -> str:
        """Running, finished or stopped."""
        if (self.folder / "result.json").exists():
            return "finished"
        is_recent = time.time() - self._modified < RECENT
        return "running" if self.locked or (not self.settings and is_recent) else "stopped"

    @cached_property
    def _modified(self) -> float:
        return self._curve.stat().st_mtime

    def row(self) -> dict[str, Any]:
        """Return the row of the list."""
        steps = int(self.rows[-1]["step"]) if self.rows else 0
        planned = self.settings.get("sft.steps" if self._in_sft else "steps", "")
        total = int(planned) if planned.isdecimal() else None
        progress = {"progress": min(1.0, steps / total)} if total and self.state == "running" else {}

        def last(*names: str) -> float | None:
            values = [row[name] for row in self.rows for name in names if name in row][-SMOOTHING:]
            return float(np.mean(values)) if values else None

        cells = (
            cell(self.name, href=f"training?{urlencode({'run': self.name})}"),
            cell("sft" if self._in_sft else self.settings.get("algorithm", "")),
            cell(self.settings.get("model") or self.settings.get("preset", "")),
            cell(f"{steps:,}" + (f" of {total:,}" if total else ""), steps),
            number_cell(last("reward"), ".3f"),
            number_cell(last("success"), ".1%"),
            number_cell(last("seconds", "perf/time_per_step"), ".3g"),
            cell(self.state, group=self.state, **progress),
            cell(time.strftime("%Y-%m-%d %H:%M", time.gmtime(self._modified))),
        )
        return {"cells": cells}

    def page(self) -> dict[str, Any]:
        """Return the data of the training's page: all metrics, those of `PANELS` first."""
        titles = dict(PANELS)
        names = dict.fromkeys(name for row in self.rows for name in row if name != "step")
        metrics = [
            self._metric(name, titles.get(name, "")) for name in (*titles, *(names.keys() - titles)) if name in names
        ]
        lead = [f"{name} {value}" for name, value in self.settings.items()]
        steps = f"{len(self.rows):,} steps logged"
        return {
            "title": self.name,
            "lead": [self.state, steps, *lead],
            "metrics": sorted(
                metrics, key=lambda metric: (not metric["title"], metric["name"] if not metric["title"] else "")
            ),
        }

    def _metric(self, name: str, title: str) -> Mapping[str, Any]:
        points = [(row["step"], row[name]) for row in self.rows if name in row]
        steps, values = np.array(points).T
        mean = smooth(values)
        steps, values = steps[len(values) - len(mean) :], values[len(values) - len(mean) :]
        chosen = np.unique(np.linspace(0, len(mean) - 1, min(len(mean), POINTS)).round().astype(int))
        return {
            "name": name,
            "title": title,
            "turns": steps[chosen].tolist(),
            "mean": rounded(mean[chosen]),
            "single": [rounded(values[chosen])],
        }
