"""What a terminal shows while a model is trained."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from training.local.held_out import HeldOut
from vlmgym.evaluation.progress import ProgressWithFacts

LINE_EVERY = 10
"""Steps between lines in a log."""
SMOOTHING = 0.9
"""Weight of the past in the reward that is shown."""


class ColdStartProgress(ProgressWithFacts):
    """Batches of the cold start, their loss, and what generated responses are like."""

    def __init__(self, console: Console, batches: int) -> None:
        super().__init__(console)
        self._bar = self.add_task("cold start", total=batches)
        self._seen = ""

    def batch(self, step: int, loss: float) -> None:
        """A batch was learned."""
        self.facts = f"loss {loss:.3f}{self._seen}"
        self.update(self._bar, completed=step + 1)

    def look(self, found: HeldOut) -> None:
        """Responses were generated."""
        seen = "" if found.perception is None else f", {found.perception:.0%} of cells right"
        self._seen = f"{seen}, {found.format:.0%} in form, reward {found.reward:.2f}"
        say_in_a_log(self.console, f"cold start, batch {self.tasks[0].completed}: {self._seen.removeprefix(', ')}")


class StepProgress(ProgressWithFacts):
    """Steps of reinforcement learning, with the time that is left."""

    def __init__(self, console: Console, steps: int) -> None:
        super().__init__(console)
        self._bar = self.add_task("steps", total=steps)
        self._reward: float | None = None

    def show(self, step: int, row: Mapping[str, float]) -> None:
        """A step was taken; its numbers."""
        if row:
            now = row["reward"]
            self._reward = now if self._reward is None else SMOOTHING * self._reward + (1 - SMOOTHING) * now
            self.facts = f"reward {self._reward:.3f}, {row['format']:.0%} in form, {row['seconds']:.1f} s a step"
        self.update(self._bar, completed=step)
        if row and step % LINE_EVERY == 0:
            say_in_a_log(self.console, f"step {step}: {self.facts}")


def say_in_a_log(console: Console, line: str) -> None:
    """Print a line where there is no terminal whose bar moves."""
    if not console.is_terminal:
        console.print(line, soft_wrap=True)
