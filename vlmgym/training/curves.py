"""Metrics of a run: `curve.jsonl`, `curve.png`, TensorBoard, and progress bars."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from vlmgym.pages.training import PANELS, SMOOTHING, read_curve, smooth
from vlmgym.runs.files import LineLog, replace_file, writing
from vlmgym.terminal import ProgressWithStatus

if TYPE_CHECKING:
    from vlmgym.training.validation import ValidationResult

DRAW_INTERVAL = 20.0
"""Minimum number of seconds between two drawings."""


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
    figure = Figure(figsize=(width, height), dpi=110)
    # Fixed margins: fitting them to the labels would double the drawing time, and training waits for the drawing.
    figure.subplots_adjust(0.6 / width, 0.5 / height, 1 - 0.15 / width, 1 - 0.35 / height, wspace=0.25, hspace=0.42)
    for number, (name, title) in enumerate(panels, 1):
        axes = figure.add_subplot(lines, columns, number)
        steps = np.array([row["step"] for row in rows if name in row])
        values = np.array([row[name] for row in rows if name in row])
        axes.plot(steps, values, lw=0.9, alpha=0.4, color="tab:blue")
        means, marker = smooth(values), "." if len(values) < SMOOTHING else ""
        axes.plot(steps[len(values) - len(means) :], means, lw=2.2, color="tab:blue", marker=marker)
        axes.set_title(title, loc="left", fontsize=10, weight="bold")
        axes.set_xlabel("step", fontsize=9)
        axes.tick_params(labelsize=9)
        axes.yaxis.set_major_formatter("{x:.3g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return to_png(figure)


ARM_COLOURS = ("tab:gray", "tab:orange", "tab:blue")
"""Colours of the start, the control and the trained model."""


def draw_comparison(
    curves: Mapping[str, Sequence[Mapping[str, float]]], results: Mapping[str, Mapping[str, Any]]
) -> bytes:
    """Draw a PNG that compares a trained model and its control, which continue the same start.

    Args:
        curves: `success` by `step` of each arm except the start.
        results: Validation of the start and of each arm; see `evaluate_model`.
    """
    figure = Figure(figsize=(9.6, 3.8), dpi=110)
    figure.subplots_adjust(0.07, 0.13, 0.985, 0.9, wspace=0.16)
    over_time, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    colours = dict(zip(results, ARM_COLOURS))
    start, *_ = results.values()
    for name, rows in curves.items():
        if not rows:  # a run without steps
            continue
        values = np.array([start["states"]["success"], *(row["success"] for row in rows)])
        shares = np.array([0, *(row["step"] for row in rows)]) / rows[-1]["step"]
        window = max(1, min(SMOOTHING // 2, len(values) // 5))
        over_time.plot(shares, values, lw=0.9, alpha=0.35, color=colours[name])
        means = np.array([values[max(0, end - window) : end].mean() for end in range(1, len(values) + 1)])
        over_time.plot(shares, means, lw=2.2, color=colours[name], label=name)
    over_time.plot(0, start["states"]["success"], "o", color=colours[next(iter(results))], label="start", clip_on=False)
    over_time.set_xlabel("share of the training", fontsize=9)
    over_time.set_title("right responses during training", loc="left", fontsize=10, weight="bold")
    over_time.legend(frameon=False, fontsize=9, loc="lower right")
    for column, (name, result) in enumerate(results.items()):
        for offset, kind in ((-0.2, "states"), (0.2, "greedy")):
            if kind not in result:
                continue
            success, (low, high) = result[kind]["success"], result[kind]["success_ci"] or (np.nan, np.nan)
            hatch = {} if kind == "states" else {"fill": False, "hatch": "///", "edgecolor": colours[name]}
            bars.bar(column + offset, success, 0.36, color=colours[name], **hatch)
            bars.plot([column + offset] * 2, [low, high], color="black", lw=1.2)
    bars.set_xticks(range(len(results)), [*results], fontsize=9)
    bars.set_title("held-out: sampled, greedy (hatched)", loc="left", fontsize=10, weight="bold")
    for axes in (over_time, bars):
        axes.set_ylim(0, 1.02)
        axes.tick_params(labelsize=9)
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, axis="y")
    return to_png(figure)


def to_png(figure: Figure) -> bytes:
    """Render a figure."""
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()


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


LOG_INTERVAL = 10
"""Steps between printed lines if the output is not a terminal."""
REWARD_WEIGHT = 0.1
"""Weight of a step in the exponential moving average of the displayed reward."""


class SftProgress(ProgressWithStatus):
    """Progress of supervised fine-tuning: batches, loss and checks."""

    def __init__(self, console: Console, steps: int) -> None:
        super().__init__(console)
        self._bar = self.add_task("supervised fine-tuning", total=steps)
        self._skills = ""

    def batch(self, step: int, loss: float) -> None:
        """Show the number of completed steps and the loss of the last."""
        self.facts = f"loss {loss:.3f}{self._skills}"
        self.update(self._bar, completed=step)

    def check(self, result: ValidationResult) -> None:
        """Show the result of a validation next to the loss; if the output is not a terminal, print it."""
        skills = f"{result.skills}, reward {result.reward:.2f}"
        self._skills = f", {skills}"
        print_unless_terminal(self.console, f"sft step {self.tasks[0].completed}: {skills}")


class StepProgress(ProgressWithStatus):
    """Progress of reinforcement learning, with the remaining time."""

    def __init__(self, console: Console, steps: int) -> None:
        super().__init__(console)
        self._bar = self.add_task("steps", total=steps)
        self._reward: float | None = None

    def show(self, step: int, row: Mapping[str, float]) -> None:
        """Show the number of completed steps and, unless `row` is empty, the metrics of the last step."""
        if row:
            reward = row["reward"]
            before = reward if self._reward is None else self._reward
            self._reward = before + REWARD_WEIGHT * (reward - before)
            self.facts = (
                f"reward {self._reward:.3f}, {row['format']:.0%} format compliance, {row['seconds']:.1f} s per step"
            )
        self.update(self._bar, completed=step)
        if row and step % LOG_INTERVAL == 0:
            print_unless_terminal(self.console, f"step {step}: {self.facts}")


def print_unless_terminal(console: Console, line: str) -> None:
    """Print a line if no progress bar is visible."""
    if not console.is_terminal:
        console.print(line, soft_wrap=True)
