"""Curves of a training run: a line of numbers a step, TensorBoard, wandb if asked for, and an image drawn again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.core.plots import DRAW_INTERVAL, draw_curves, read_curve
from training.local.run import TrainingRun
from vlmgym.evaluation.live_log import begin_wandb
from vlmgym.records.files import LineLog, writing
from vlmgym.records.output_folder import OutputFolder


class Curves:
    """Everything that is written of a step."""

    def __init__(self, folder: Path, wandb: Any = None, after: int = 0) -> None:
        """Begin, or go on.

        Args:
            folder: Of the run.
            wandb: The run at Weights & Biases, or None.
            after: Steps that stay of an earlier part of the run; later ones are dropped, as they are taken again.

        Raises:
            OutputError: A file cannot be written.
        """
        from torch.utils.tensorboard import SummaryWriter

        self._output = OutputFolder(folder)
        folder = self._output.folder
        self.path, self.image = folder / "curve.jsonl", folder / "curve.png"
        self.rows = [row for row in read_curve(self.path) if row["step"] <= after]
        self._output.write(self.path, "".join(json.dumps(row) + "\n" for row in self.rows).encode())
        self._log = LineLog(self.path)
        self._log.__enter__()
        with writing(folder):
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=after + 1)
        self._wandb = wandb
        self._drawn = time.monotonic()

    def __enter__(self) -> Curves:
        return self

    def __exit__(self, *_: object) -> None:
        """Draw for the last time and let go of the files."""
        self.draw()
        self._board.close()
        self._log.__exit__(None, None, None)

    def add(self, row: Mapping[str, float]) -> None:
        """Write the numbers of a step, `step` among them."""
        self.rows.append(dict(row))
        self._log.write(json.dumps(row))
        numbers = {name: value for name, value in row.items() if name != "step"}
        for name, value in numbers.items():
            self._board.add_scalar(name, value, int(row["step"]))
        if self._wandb is not None:
            self._wandb.log(dict(row))
        if time.monotonic() > self._drawn + DRAW_INTERVAL:
            self.draw()

    def draw(self) -> None:
        """Draw `curve.png`."""
        self._drawn = time.monotonic()
        if self.rows:
            self._output.write(self.image, draw_curves(self.rows))


@contextmanager
def wandb_run(project: str | None, run: TrainingRun) -> Iterator[Any]:
    """The run at Weights & Biases, that of the folder if it has one; None where there is no project.

    Raises:
        UsageError: Weights & Biases does not take the run.
    """
    if project is None:
        yield None
        return
    config = json.loads(run.decided.read_text(encoding="utf-8"))
    with begin_wandb(project, run.folder, run.wandb, config) as board:
        yield board
