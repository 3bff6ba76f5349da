"""The record of an evaluation: a public, versioned contract (docs/record.md).

One JSON line per finished episode is written as the episode ends; a finished run is one JSON document that holds the
same episodes and a summary. Everything else (videos, curves, other rewards) follows from the record alone.
"""

from __future__ import annotations

import platform
from functools import lru_cache
from importlib.metadata import version
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

import vlmgym
from vlmgym.sandbox.game import Game
from vlmgym.sandbox.reward import Outcome, RewardConfig

RECORD_VERSION: Literal[1] = 1
"""Raised when a field changes its meaning or goes; a reader refuses others, and ignores unknown fields."""

PACKAGES = ("numpy", "gymnasium", "gymnasium-2048", "pygame")
"""Packages that decide rules, chance and pixels, beside vlmgym and Python."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RewardRecord(_Record):
    """The parts of one turn's reward; see `vlmgym.sandbox.reward.Scored`."""

    overall: float
    game: float
    format: float
    perception: float | None
    perception_exact: float | None


class TurnRecord(_Record):
    """One turn.

    Attributes:
        turn: Number of the turn, from 1.
        state: The position that was answered, as the game's `to_json` writes it.
        prompt: What the policy was told beside the pictures.
        response: What it said, unchanged.
        outcome: Played, illegal or unparsable.
        action: The action, None if unparsable.
        feedback: Why nothing was played, or empty.
        reward: Parts of the reward.
        info: The game's facts about the step.
        latency: Seconds from asking the policy to its response, None for a policy that runs beside the game.
        prompt_tokens: Tokens of prompt and pictures, where the policy counts them.
        completion_tokens: Tokens of the response, where the policy counts them.
    """

    turn: int
    state: JsonValue
    prompt: str
    response: str
    outcome: Outcome
    action: JsonValue
    feedback: str
    reward: RewardRecord
    info: dict[str, JsonValue]
    latency: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class GameRecord(_Record):
    """Which game was played: its id and every knob of its configuration."""

    id: str
    config: dict[str, JsonValue]

    @classmethod
    def of(cls, game: Game[object, object]) -> GameRecord:
        """The record of a game."""
        return cls(id=game.id, config=game.config.model_dump(mode="json"))


class EpisodeRecord(_Record):
    """One finished episode.

    Attributes:
        record: Version of this format.
        versions: Versions of Python and of the packages that decide rules, chance and pixels.
        game: The game and its configuration.
        policy: Name of the policy.
        reward: Weights and shaping.
        history: How many earlier turns were part of a prompt.
        max_turns: The limit of turns.
        seed: Seed of the episode.
        turns: All turns.
        final_state: The position after the last turn.
        end: Why the game ended, or `turn limit`.
        terminated: Whether the game itself ended.
        score: Sum of the game's own rewards.
        metrics: The game's facts about the episode.
    """

    record: Literal[1] = RECORD_VERSION
    versions: dict[str, str]
    game: GameRecord
    policy: str
    reward: RewardConfig
    history: int
    max_turns: int
    seed: int
    turns: tuple[TurnRecord, ...]
    final_state: JsonValue
    end: str
    terminated: bool
    score: float
    metrics: dict[str, float | str]


class Summary(_Record):
    """What the episodes of a run come to.

    Attributes:
        episodes: How many episodes were finished.
        turns: Turns of all episodes.
        score_mean: Mean score.
        score_se: Standard error of the mean (sample standard deviation over root n), None for a single episode.
        score_best: Highest score.
        illegal_rate: Share of turns whose action was illegal.
        unparsable_rate: Share of turns whose response held no action.
        format_mean: Mean format part over turns.
        perception_mean: Mean share of cells that `<perception>` had right, over turns; None if the game has no truth.
        perception_exact_rate: Share of turns whose `<perception>` was wholly right; None likewise.
        ends: How many episodes ended for which reason.
        metric_means: Mean and standard error of each metric that is a number.
        metric_counts: How often each word of each metric that is a word occurred.
        seconds: Wall time of playing.
        turns_per_second: Turns over wall time.
    """

    episodes: int
    turns: int
    score_mean: float
    score_se: float | None
    score_best: float
    illegal_rate: float
    unparsable_rate: float
    format_mean: float
    perception_mean: float | None
    perception_exact_rate: float | None
    ends: dict[str, int]
    metric_means: dict[str, tuple[float, float | None]]
    metric_counts: dict[str, dict[str, int]]
    seconds: float
    turns_per_second: float


class RunRecord(_Record):
    """A finished run: the episodes in the order of their seeds, and the summary."""

    record: Literal[1] = RECORD_VERSION
    summary: Summary
    episodes: tuple[EpisodeRecord, ...]

    def document(self) -> str:
        """The run as JSON, one episode a line."""
        head = f'{{"record": {self.record},\n"summary": {self.summary.model_dump_json(indent=1)},\n"episodes": [\n'
        return head + ",\n".join(episode.model_dump_json() for episode in self.episodes) + "\n]}\n"


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions that decide rules, chance and pixels."""
    packages = {package: version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "vlmgym": vlmgym.__version__, **packages}
