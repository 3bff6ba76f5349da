"""The rows of a training run, in order: what EasyR1 takes for its data loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vlmgym.curriculum import Curriculum, Progress
from vlmgym.errors import UsageError


class RowStream:
    """Numbers of rows, a batch a step, and how far the curriculum has come.

    A row's position is a pure function of the seed, its number and the curriculum's progress, so that number and
    progress are all that a checkpoint has to keep: EasyR1 saves `state_dict` with each, and a run that goes on has the
    same rows as one that was never interrupted.
    """

    def __init__(self, curriculum: Curriculum, seed: int, batch: int) -> None:
        """Begin with row 0.

        Args:
            curriculum: What is played.
            seed: Of the training run.
            batch: Rows of a step.
        """
        self.curriculum, self.seed, self.batch = curriculum, seed, batch
        self.next_row = 0
        self.progress: Progress = curriculum.begin()

    def __len__(self) -> int:
        """EasyR1 counts steps by it where trainer.max_steps is not set, which vlmgym does not accept."""
        return 1

    def __iter__(self) -> Iterator[range]:
        """Rows of the next step, and so on without end."""
        while True:
            rows = range(self.next_row, self.next_row + self.batch)
            self.next_row = rows.stop
            yield rows

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"seed": self.seed, "next_row": self.next_row, "progress": self.progress.model_dump_json()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            UsageError: It is of a run with another seed or curriculum.
        """
        if state["seed"] != self.seed:
            raise UsageError(f"the checkpoint is of a run with data.seed={state['seed']}, not {self.seed}")
        progress = Progress.model_validate_json(state["progress"])
        self.curriculum.check(progress)
        self.next_row, self.progress = state["next_row"], progress
