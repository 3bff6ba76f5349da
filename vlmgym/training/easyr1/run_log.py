"""The EasyR1 logger `vlmgym`, which writes a JSON line per step and updates a plot during training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl.utils.logger.logger import Logger

from vlmgym.runs.files import replace_file
from vlmgym.training.plots import CurvePlot, read_curve

PANELS = {
    "reward/total": "reward",
    "val/score": "score",
    "reward/perception": "perception",
    "reward/format": "format",
    "actor/grad_norm": "grad_norm",
    "critic/vf_explained_var": "explained_variance",
}
"""EasyR1's names of the metrics to plot, and the names of the same metrics in local training."""


class RunLog(Logger):
    """Writes `curve.jsonl` and `curve.png` next to the checkpoints.

    When a run is resumed, logging a step drops all metrics of later steps.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        folder = Path(config["trainer"]["save_checkpoint_path"])
        self.path, self.image = folder / "curve.jsonl", folder / "curve.png"
        self.rows = read_curve(self.path)
        self._plot = CurvePlot(lambda png: replace_file(self.image, png))

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Log metrics of a step; several calls for the same step are merged."""
        same = next((row for row in self.rows if row["step"] == step), {})
        row = {"step": step, **same, **{name: float(value) for name, value in data.items()}}
        self.rows = [*(row for row in self.rows if row["step"] < step), row]
        replace_file(self.path, (json.dumps(row).encode() + b"\n" for row in self.rows))
        self._plot.update(self._plotted())

    def finish(self) -> None:
        """Draw the final curves."""
        self._plot.update(self._plotted(), final=True)

    def _plotted(self) -> list[dict[str, float]]:
        return [
            {"step": row["step"], **{PANELS[name]: value for name, value in row.items() if name in PANELS}}
            for row in self.rows
            if any(name in row for name in PANELS)
        ]
