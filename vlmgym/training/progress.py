"""Progress bars for training."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from vlmgym.terminal import ProgressWithStatus
from vlmgym.training.validation import ValidationResult

LOG_INTERVAL = 10
"""Steps between printed lines if the output is not a terminal."""
SMOOTHING = 0.9
"""Weight of the previous value in the exponential moving average of the displayed reward."""


class SftProgress(ProgressWithStatus):
    """Progress of supervised fine-tuning: batches, loss and checks."""

    def __init__(self, console: Console, steps: int) -> None:
        super().__init__(console)
        self._bar = self.add_task("supervised fine-tuning", total=steps)
        self._check = ""

    def batch(self, step: int, loss: float) -> None:
        """Show the loss of a step."""
        self.facts = f"loss {loss:.3f}{self._check}"
        self.update(self._bar, completed=step + 1)

    def check(self, result: ValidationResult) -> None:
        """Show the result of a validation next to the loss; if the output is not a terminal, print it."""
        perception = "" if result.perception is None else f", {result.perception:.0%} perception accuracy"
        self._check = f"{perception}, {result.format:.0%} format compliance, reward {result.reward:.2f}"
        print_unless_terminal(self.console, f"sft step {self.tasks[0].completed}: {self._check.removeprefix(', ')}")


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
            self._reward = reward if self._reward is None else SMOOTHING * self._reward + (1 - SMOOTHING) * reward
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
