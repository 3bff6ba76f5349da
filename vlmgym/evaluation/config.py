"""The options that all evaluation scripts and `vlmgym eval` share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.options import GameOptions
from vlmgym.sandbox.reward import RewardConfig


@dataclass(frozen=True, kw_only=True)
class EvalConfig(GameOptions):
    """Play episodes of a game with a policy; leave records, curves and videos."""

    policy: str | None = None
    """random, random-legal, oracle, MODULE:FUNCTION or FILE.py:FUNCTION. Default: the script's own, or random."""
    episodes: int = 10
    """Episodes to play; their seeds are seed, seed + 1, ..."""
    turns: int = 100
    """Limit of turns of an episode; an illegal or unparsable response uses one up."""
    seed: int = 0
    """First seed."""
    workers: int | None = None
    """Worker processes; 0 plays in this process. Default: one per core."""
    concurrency: int = 64
    """Episodes played at once, at most."""
    history: int = 0
    """Earlier turns that a prompt repeats."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Weights and shaping of the reward; the score is always the game's own."""
    out: Path | None = None
    """Folder for logs/ and videos/. Default: beside the script, or the current folder."""
    video: bool = True
    """Write a video of every episode."""
    fps: int = 4
    """Turns a second in the videos, 1 to 60."""
    timeout: float = 300.0
    """Seconds that one call of a custom policy may take."""

    def __post_init__(self) -> None:
        check_limits(self.episodes, self.turns, self.seed, self.concurrency, self.history, self.workers, self.timeout)
        if not 1 <= self.fps <= 60:
            raise UsageError(f"fps is 1 to 60, not {self.fps}")


def check_limits(
    episodes: int, turns: int, seed: int, concurrency: int, history: int, workers: int | None, timeout: float
) -> None:
    """Refuse numbers that no evaluation can have.

    Raises:
        UsageError: The message names the first that is too small.
    """
    for name, value, least in (
        ("episodes", episodes, 1),
        ("turns", turns, 1),
        ("seed", seed, 0),
        ("concurrency", concurrency, 1),
        ("history", history, 0),
        ("workers", 0 if workers is None else workers, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} is a whole number of at least {least}, not {value!r}")
    if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
        raise UsageError(f"timeout is a number of seconds above 0, not {timeout!r}")
