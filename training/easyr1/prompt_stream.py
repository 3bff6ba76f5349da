"""The stream of prompts of a training run, used by EasyR1 as its data loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.errors import UsageError


class PromptStream:
    """Yields batches of row numbers and tracks the progress of the curriculum.

    The state of a row is a pure function of seed, row number and curriculum progress, so a checkpoint only stores the
    latter two (`state_dict`), and a resumed run gets the same rows as an uninterrupted one.
    """

    def __init__(self, curriculum: Curriculum, seed: int, batch: int) -> None:
        """Start at row 0.

        Args:
            curriculum: Curriculum to play.
            seed: Seed of the training run.
            batch: Rows per step.
        """
        self.curriculum, self.seed, self.batch = curriculum, seed, batch
        self.next_row = 0
        self.progress: Progress = curriculum.begin()

    def __len__(self) -> int:
        """Required by EasyR1 only without trainer.max_steps, which vlmgym refuses."""
        return 1

    def __iter__(self) -> Iterator[range]:
        """Yield the rows of each step, endlessly."""
        while True:
            rows = range(self.next_row, self.next_row + self.batch)
            self.next_row = rows.stop
            yield rows

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"seed": self.seed, "next_row": self.next_row, "progress": self.progress.model_dump_json()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint.

        Raises:
            UsageError: The checkpoint has another seed or curriculum.
        """
        if state["seed"] != self.seed:
            raise UsageError(f"the checkpoint is of a run with data.seed={state['seed']}, not {self.seed}")
        progress = Progress.model_validate_json(state["progress"])
        self.curriculum.check(progress)
        self.next_row, self.progress = state["next_row"], progress
