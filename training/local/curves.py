"""Curves of a training run: a line of numbers a step, TensorBoard, wandb if asked for, and a picture drawn again."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from vlmgym.errors import UsageError
from vlmgym.evaluation.files import LineLog, replace_file, writing

DRAW_EVERY = 20.0
"""Seconds between drawings."""
SMOOTHING = 20
"""Steps whose mean is the thick line."""
PANELS = (
    ("reward", "reward of an answer"),
    ("perception", "share of cells seen right"),
    ("format", "share of answers in form"),
    ("entropy", "entropy of a token, nats"),
    ("grad_norm", "length of the gradient"),
    ("explained", "variance that the critic explains"),
)
"""What is drawn of a step's numbers, and what it is called."""


class Curves:
    """Everything that is written of a step."""

    def __init__(self, folder: Path, wandb: str | None = None, after: int = 0) -> None:
        """Begin, or go on.

        Args:
            folder: Of the run.
            wandb: Project of Weights & Biases, or None.
            after: Steps that stay of an earlier part of the run; later ones are dropped, as they are taken again.

        Raises:
            UsageError: wandb is asked for and not installed.
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
        self._wandb = _wandb_run(wandb, folder) if wandb else None
        self._drawn = time.monotonic()

    def __enter__(self) -> Curves:
        return self

    def __exit__(self, *_: object) -> None:
        """Draw for the last time and let go of the files."""
        self.draw()
        self._board.close()
        self._log.__exit__(None, None, None)
        if self._wandb is not None:
            self._wandb.finish()

    def add(self, row: Mapping[str, float]) -> None:
        """Write the numbers of a step, `step` among them."""
        self.rows.append(dict(row))
        self._log.write(json.dumps(row))
        numbers = {name: value for name, value in row.items() if name != "step"}
        for name, value in numbers.items():
            self._board.add_scalar(name, value, int(row["step"]))
        if self._wandb is not None:
            self._wandb.log(numbers, step=int(row["step"]))
        if time.monotonic() > self._drawn + DRAW_EVERY:
            self.draw()

    def draw(self) -> None:
        """Draw `curve.png`."""
        self._drawn = time.monotonic()
        if self.rows:
            replace_file(self.picture, draw_curves(self.rows))


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
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.0 * lines), dpi=110, layout="constrained")
    for place, (name, title) in enumerate(panels, 1):
        axes = figure.add_subplot(lines, columns, place)
        steps = np.array([row["step"] for row in rows if name in row])
        values = np.array([row[name] for row in rows if name in row])
        axes.plot(steps, values, lw=0.9, alpha=0.4, color="tab:blue")
        window = min(SMOOTHING, len(values))
        smooth = np.convolve(values, np.ones(window) / window, mode="valid")
        axes.plot(steps[window - 1 :], smooth, lw=2.2, color="tab:blue")
        axes.set_title(title, loc="left", fontsize=10, weight="bold")
        axes.set_xlabel("step", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


def _wandb_run(project: str, folder: Path) -> Any:
    try:
        import wandb
    except ImportError:
        raise UsageError("--wandb needs wandb: run pip install wandb in this environment, or leave it out") from None
    return wandb.init(project=project, dir=str(folder), name=folder.name)
