"""Curves of a training run: a line of numbers a step, TensorBoard, wandb if asked for, and a picture drawn again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from training.core.plots import DRAW_EVERY, draw_curves, read_rows
from training.local.run import TrainingRun
from vlmgym.errors import UsageError
from vlmgym.evaluation.files import LineLog, replace_file, writing
from vlmgym.policies.checkpoint import reason


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

        self.path, self.picture = folder / "curve.jsonl", folder / "curve.png"
        self.rows = [row for row in read_rows(self.path) if row["step"] <= after]
        replace_file(self.path, "".join(json.dumps(row) + "\n" for row in self.rows).encode())
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
        if time.monotonic() > self._drawn + DRAW_EVERY:
            self.draw()

    def draw(self) -> None:
        """Draw `curve.png`."""
        self._drawn = time.monotonic()
        if self.rows:
            replace_file(self.picture, draw_curves(self.rows))


def check_wandb(project: str | None) -> None:
    """Refuse a project of Weights & Biases where wandb cannot be imported.

    Raises:
        UsageError: It is asked for.
    """
    if project is not None:
        try:
            import wandb  # noqa: F401
        except ImportError as error:
            told = f"--wandb needs wandb ({reason(error)}): run pip install wandb in this environment, or leave it out"
            raise UsageError(told) from None


@contextmanager
def wandb_run(project: str | None, run: TrainingRun) -> Iterator[Any]:
    """The run at Weights & Biases, that of the folder if it has one; None where there is no project.

    Raises:
        UsageError: Weights & Biases does not take the run.
    """
    if project is None:
        yield None
        return
    import wandb

    folder, kept = run.folder, run.wandb
    if not kept.exists():
        replace_file(kept, uuid4().hex.encode())
    try:
        board = wandb.init(
            project=project,
            dir=str(folder),
            name=folder.name,
            id=kept.read_text(),
            resume="allow",
            config=json.loads(run.decided.read_text(encoding="utf-8")),
        )
    except wandb.Error as error:
        raise UsageError(f"Weights & Biases does not take the run: {reason(error)}") from None
    board.define_metric("*", step_metric="step")  # wandb's own steps cannot be taken again after a crash
    with board:
        yield board
