"""Score responses to snapshots, one at a time or as a reward function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vlmgym.api.episode import Episode
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.reward import Scored


def score(snapshot: str, response: str) -> Scored[Any, Any]:
    """Score a response to the turn of a snapshot, exactly as the episode would.

    Raises:
        StateError: The string is not a snapshot.
        EpisodeEnded: The episode has ended.
    """
    return Episode.restore(snapshot).respond(response)


def reward_fn(
    prompts: Sequence[Any], completions: Sequence[Any], snapshot: Sequence[str], **columns: Any
) -> list[float]:
    """Reward each completion by its `Scored.total`; a reward function for TRL's trainers.

    Args:
        prompts: Unused.
        completions: Responses, as strings or as lists with one assistant message each.
        snapshot: The column of the same name of `make_dataset`.
        columns: Unused.

    Raises:
        UsageError: A completion has several messages, or a string is not a snapshot.
        EpisodeEnded: An episode has ended.
    """
    return [score(state, _text(completion)).total for state, completion in zip(snapshot, completions, strict=True)]


def _text(completion: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(completion, str):
        return completion
    if len(completion) != 1:
        raise UsageError(f"reward_fn takes completions of one message, got {len(completion)} messages")
    content = completion[0]["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
