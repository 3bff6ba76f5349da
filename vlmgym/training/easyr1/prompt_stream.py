"""The stream of prompts of a training run, used by EasyR1 as its data loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vlmgym.curriculum import Curriculum, Pick, Progress
from vlmgym.errors import UsageError


class PromptStream:
    """Yields ranges of prompt ids and tracks the progress of the curriculum.

    The initial state of a prompt is a pure function of seed, prompt_id and curriculum progress. A checkpoint therefore
    only stores the seed, the next prompt_id and the progress, and a resumed run gets the same states as an
    uninterrupted one.
    """

    def __init__(self, curriculum: Curriculum, seed: int, batch_size: int) -> None:
        """Start at prompt 0, with `batch_size` prompts per step."""
        self.curriculum, self.seed, self.batch_size = curriculum, seed, batch_size
        self.next_prompt_id = 0
        self.progress: Progress = curriculum.begin()

    def __len__(self) -> int:
        """Return a dummy: EasyR1 uses the length only without trainer.max_steps, which the preflight checks require."""
        return 1

    def __iter__(self) -> Iterator[range]:
        """Yield the prompt ids of each step, endlessly."""
        while True:
            prompt_ids = range(self.next_prompt_id, self.next_prompt_id + self.batch_size)
            self.next_prompt_id = prompt_ids.stop
            yield prompt_ids

    def picks(self, prompt_ids: range) -> dict[int, Pick]:
        """Pick the game of each prompt of a step; return picks keyed by prompt_id."""
        return self.curriculum.picks(self.progress, self.seed, prompt_ids)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "seed": self.seed,
            "next_prompt_id": self.next_prompt_id,
            "progress": self.progress.model_dump_json(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint; raise `UsageError` if its seed or curriculum differs."""
        if state["seed"] != self.seed:
            raise UsageError(f"the checkpoint has data.seed={state['seed']}, but this run has data.seed={self.seed}")
        progress = Progress.model_validate_json(state["progress"])
        self.curriculum.check(progress)
        self.next_prompt_id, self.progress = state["next_prompt_id"], progress
