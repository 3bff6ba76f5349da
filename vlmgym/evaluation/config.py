"""The options that all evaluation scripts and `vlmgym eval` share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.sandbox.game import Game
from vlmgym.sandbox.registry import make_game
from vlmgym.sandbox.reward import RewardConfig


@dataclass(frozen=True)
class EvalConfig:
    """Play episodes of a game with a policy; leave records, curves and videos."""

    policy: str | None = None
    """random, random-legal, oracle, MODULE:FUNCTION or FILE.py:FUNCTION. Default: the script's custom_policy, or random."""
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
    size: int = 640
    """Side of the square picture in pixels."""
    perception: int = 3
    """Difficulty for the eye, 1 to 5."""
    reasoning: int = 3
    """Difficulty for the mind, 1 to 5."""
    set: tuple[str, ...] = ()
    """Single knobs of the game that override the levels, as NAME=VALUE, for instance rows=5 columns=5."""
    history: int = 0
    """Earlier turns that a prompt repeats."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Weights and shaping of the reward; the score is always the game's own."""
    out: Path | None = None
    """Folder for logs/ and videos/. Default: beside the script, or the current folder."""
    video: bool = True
    """Write a video of every episode."""
    fps: int = 4
    """Turns a second in the videos."""
    timeout: float = 300.0
    """Seconds that one call of a custom policy may take."""

    def __post_init__(self) -> None:
        if not 1 <= self.fps <= 60:
            raise UsageError(f"--fps is 1 to 60, not {self.fps}")

    def game(self, name: str) -> Game[Any, Any]:
        """The game at this difficulty.

        Raises:
            UsageError: There is no such game, or it does not accept a setting.
        """
        knobs = parse_knobs(self.set)
        if "size" in knobs:
            raise UsageError("set the size of the picture by --size")
        return make_game(name, self.perception, self.reasoning, size=self.size, **knobs)


def parse_knobs(settings: tuple[str, ...]) -> dict[str, Any]:
    """Knobs written as NAME=VALUE; a value is JSON, or else a plain word.

    Raises:
        UsageError: A setting has no name or no value, or a name comes twice.
    """
    knobs: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--set takes NAME=VALUE, for instance rows=5, not {setting!r}")
        if name in knobs:
            raise UsageError(f"--set names {name!r} twice")
        try:
            knobs[name] = json.loads(value)
        except json.JSONDecodeError:
            knobs[name] = value
    return knobs
