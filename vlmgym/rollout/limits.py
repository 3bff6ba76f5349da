"""Limits of a run."""

from __future__ import annotations

from vlmgym.checks import check_int
from vlmgym.errors import UsageError


def check_limits(episodes: int, max_turns: int, seed: int, concurrency: int, history: int, history_images: int) -> None:
    """Refuse numbers that no evaluation can have.

    Raises:
        UsageError: The message names the first that is not accepted.
    """
    for name, value, least in (
        ("episodes", episodes, 1),
        ("max_turns", max_turns, 1),
        ("seed", seed, 0),
        ("concurrency", concurrency, 1),
        ("history", history, 0),
        ("history_images", history_images, 0),
    ):
        check_int(name, value, least)
    if history_images > history:
        raise UsageError(f"images of {history_images} earlier turns need a history of as many, not of {history}")
