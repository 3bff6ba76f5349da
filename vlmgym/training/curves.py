"""Metrics of a run: `curve.jsonl`, `curve.png`, TensorBoard, and Weights & Biases on request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from vlmgym.runs.files import LineLog, replace_file, writing
from vlmgym.runs.loggers import begin_wandb
from vlmgym.training.plots import CurvePlot, read_curve
from vlmgym.training.run import TrainingRun


class Curves:
    """Logs the metrics of each step to a JSONL file, a plot, TensorBoard and, if given, W&B."""

    def __init__(self, folder: Path, wandb: Any = None, after: int = 0) -> None:
        """Open the files, and drop existing metrics after step `after`, because these steps will be repeated."""
        from torch.utils.tensorboard import SummaryWriter

        self.path, self.image = folder / "curve.jsonl", folder / "curve.png"
        self.rows = [row for row in read_curve(self.path) if row["step"] <= after]
        replace_file(self.path, "".join(json.dumps(row) + "\n" for row in self.rows).encode())
        self._log = LineLog(self.path)
        self._log.__enter__()
        with writing(folder):
            self._tensorboard = SummaryWriter(str(folder / "tensorboard"), purge_step=after + 1)
        self._wandb = wandb
        self._plot = CurvePlot(lambda png: replace_file(self.image, png))

    def __enter__(self) -> Curves:
        return self

    def __exit__(self, *_: object) -> None:
        """Draw the final image and close the files."""
        self._plot.update(self.rows, final=True)
        self._tensorboard.close()
        self._log.__exit__(None, None, None)

    def add(self, row: Mapping[str, float]) -> None:
        """Write the metrics of a step, including `step`."""
        self.rows.append(dict(row))
        self._log.write(json.dumps(row))
        for name, value in row.items():
            if name != "step":
                self._tensorboard.add_scalar(name, value, int(row["step"]))
        if self._wandb is not None:
            self._wandb.log(dict(row))
        self._plot.update(self.rows)


def wandb_run(project: str | None, run: TrainingRun) -> AbstractContextManager[Any]:
    """Start or resume the Weights & Biases run of a training run, as a context; without a project, it yields None.

    Raises:
        UsageError: Weights & Biases rejects the run.
    """
    if project is None:
        return nullcontext()
    config = json.loads(run.config.read_text(encoding="utf-8"))
    wandb: AbstractContextManager[Any] = begin_wandb(project, run.folder, run.wandb, config)
    return wandb
