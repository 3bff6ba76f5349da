"""Adapters for trainers and evaluators, built on the public interface only; docs/integrations has a page for each."""

from __future__ import annotations

import vlmgym
from vlmgym.errors import UsageError


def restore_row(snapshot: str | None, *, may_repeat_turns: bool = False) -> vlmgym.Episode:
    """Restore the episode of a dataset's row, for a trainer that appends each turn to one conversation.

    Raises:
        UsageError: The row has no snapshot, or its prompts repeat earlier turns, which the conversation already has,
            without `may_repeat_turns`.
    """
    if snapshot is None:
        raise UsageError(
            "the dataset has no column snapshot: make it with vlmgym.make_dataset, so that the rollouts of a group "
            "start in the same state"
        )
    episode = vlmgym.Episode.restore(snapshot)
    if episode.repeats_turns and not may_repeat_turns:
        raise UsageError("the conversation already keeps earlier turns: set history=0 or chat=True in make_dataset")
    return episode
