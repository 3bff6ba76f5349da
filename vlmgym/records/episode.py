"""The record of an evaluation: a public, versioned contract (docs/record.md).

One JSON line per episode is written as the episode ends. Everything else (summary, videos, curves, the report page,
other rewards, training data, what a resumed run has left to play) follows from the record alone.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import version
from typing import Annotated, Any, Literal

from gymnasium import spaces
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

import vlmgym
from vlmgym.errors import StateError, UsageError, describe_validation_error
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome, RewardConfig
from vlmgym.sandbox.registry import game_class

RECORD_VERSION: Literal[2] = 2
"""Raised when a field changes its meaning or goes; a reader refuses others, and ignores unknown fields."""

LARGEST = 1e100
"""Largest number of a record: squares and sums of such numbers are finite, so every summary has its means."""


def _bounded(number: float) -> float:
    if not abs(number) <= LARGEST:
        raise ValueError(f"a number of a record is at most {LARGEST:g} in size, not {number:g}")
    return number


Number = Annotated[float, AfterValidator(_bounded)]
Count = Annotated[int, Field(ge=0, le=2**53)]

PACKAGES = ("numpy", "gymnasium", "gymnasium-2048", "pygame")
"""Packages that decide rules, chance and pixels, beside vlmgym and Python."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RewardRecord(_Record):
    """The parts of one turn's reward; see `vlmgym.sandbox.core.reward.Scored`."""

    total: Number
    game: Number
    format: Number
    perception: Number | None
    perception_exact: Number | None


class TurnRecord(_Record):
    """One turn.

    Attributes:
        turn: Number of the turn, from 1.
        state: The position that was answered, as the game's `to_json` writes it.
        prompt: What the policy was told beside the images.
        response: What it said, unchanged.
        outcome: Played, illegal or unparsable.
        action: The action, None if unparsable.
        feedback: Why nothing was played, or empty.
        reward: Parts of the reward.
        info: The game's facts about the step.
        latency: Seconds that the policy took for its response, None for a policy that runs beside the game.
        prompt_tokens: Tokens of prompt and images, where the policy counts them.
        completion_tokens: Tokens of the response (and of hidden reasoning), where the policy counts them.
        cost: Price of the tokens, in the currency of the prices; None without prices.
        finish_reason: Why the model stopped, in its server's words (`stop`, `length`), where it says so.
        reasoning: What the model thought apart from its response, where its server shows it.
        requests: How often the model was asked until it answered, where the policy asks a server.
        model: Name of the model that responded, where its server says it.
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
    latency: Number | None = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cost: Number | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    requests: int | None = None
    model: str | None = None


class GameRecord(_Record):
    """Which game was played: its id and every config field of its configuration."""

    id: str
    config: dict[str, JsonValue]

    @classmethod
    def of(cls, game: Game[object, object]) -> GameRecord:
        """The record of a game."""
        return cls(id=game.id, config=game.config.model_dump(mode="json"))

    def game(self) -> Game[Any, Any]:
        """The game again: one object for all equal records, which keeps its sprites.

        Raises:
            UsageError: It is not installed, or its configuration is none of the game's.
        """
        return _game(self.id, json.dumps(self.config))


@lru_cache(maxsize=64)
def _game(game_id: str, config: str) -> Game[Any, Any]:
    found = game_class(game_id)
    try:
        return found(found.Config.model_validate_json(config))
    except ValidationError as error:
        raise UsageError(f"not a configuration of {game_id}: {describe_validation_error(error)}") from None


class PolicyRecord(_Record):
    """Who played: the policy's name, and those of its options that decide what it says."""

    name: str
    options: dict[str, JsonValue] = {}

    @property
    def model(self) -> str:
        """Name of the model as the user gave it, or an empty string."""
        model = self.options.get("model")
        return model if isinstance(model, str) else ""

    @property
    def label(self) -> str:
        """Name and model; of a long path to a checkpoint its end."""
        return f"{self.name} {self.model if len(self.model) <= 60 else '...' + self.model[-57:]}".rstrip()


Status = Literal["ended", "turn limit", "stopped", "error"]
"""How an episode came to its end: the game ended it; it reached the limit of turns; the run was stopped before; the
model could not be asked. The last two are not results: they have no score, and a resumed run goes on with them."""


class EpisodeRecord(_Record):
    """One episode.

    Attributes:
        record: Version of this format.
        versions: Versions of Python and of the packages that decide rules, chance and pixels.
        game: The game and its configuration.
        policy: Who played.
        reward: Weights and shaping.
        history: How many earlier turns were part of a prompt.
        history_images: Of how many of these the images were shown again.
        max_turns: The limit of turns.
        seed: Seed of the episode.
        index: Place among the run's episodes of this game, or of the curriculum, from 0.
        attempt: 1, and one more for each time that a resumed run went on with it.
        stage: Stage of the curriculum at which it was played, if there is one.
        started: When it was begun, UTC, ISO 8601.
        turns: All turns.
        final_state: The position after the last turn.
        status: How it came to its end.
        end_reason: The game's reason, or the error message.
        score: Sum of the game's own rewards; None if the episode is not a result.
        metrics: The game's facts about the episode.
    """

    record: Literal[2] = RECORD_VERSION
    versions: dict[str, str]
    game: GameRecord
    policy: PolicyRecord
    reward: RewardConfig
    history: int
    history_images: int = 0
    max_turns: int
    seed: int
    index: int
    attempt: int = 1
    stage: str | None = None
    started: str
    turns: tuple[TurnRecord, ...]
    final_state: JsonValue
    status: Status
    end_reason: str
    score: Number | None
    metrics: dict[str, Number | str]

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> EpisodeRecord:
        if (self.score is None) != (self.status in ("stopped", "error")):
            verb = "must" if self.score is None else "cannot"
            raise ValueError(f"an episode whose status is {self.status!r} {verb} have a score")
        if len(self.turns) > self.max_turns:
            raise ValueError(f"{len(self.turns)} turns are more than max_turns, {self.max_turns}")
        if self.status == "turn limit" and len(self.turns) < self.max_turns:
            raise ValueError(f"status is 'turn limit' after {len(self.turns)} of {self.max_turns} turns")
        for number, turn in enumerate(self.turns, 1):
            if turn.turn != number:
                raise ValueError(f"turns must be numbered from 1 in order, but turn {number} is numbered {turn.turn}")
            if turn.outcome is Outcome.UNPARSABLE and turn.action is not None:
                raise ValueError(f"turn {number}: an unparsable response cannot have an action")
            if turn.outcome is Outcome.PLAYED and turn.feedback:
                raise ValueError(f"turn {number}: an action that was played cannot have feedback")
        rewards = [turn.reward.game for turn in self.turns]
        rounding = 1e-9 * math.fsum(map(abs, rewards))
        if self.score is not None and abs(self.score - math.fsum(rewards)) > rounding:
            raise ValueError(f"score is {self.score:g}, but the game's rewards sum to {math.fsum(rewards):g}")
        return self

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the other episodes of a run: game and seed."""
        return self.game.id, self.seed

    @property
    def terminated(self) -> bool:
        """Whether the game itself ended."""
        return self.status == "ended"


class DifficultyRecord(_Record):
    """The difficulty levels that were asked for.

    Attributes:
        perception: Perceptual difficulty level.
        reasoning: Reasoning difficulty level.
        overrides: Options of each game, by its id, that differ from its levels.
    """

    perception: int
    reasoning: int
    overrides: dict[str, dict[str, JsonValue]]

    @classmethod
    def of(cls, perception: int, reasoning: int, games: Iterable[Game[Any, Any]]) -> DifficultyRecord:
        """The record of games that were made at these levels, with single options overridden."""
        overrides = {}
        for game in games:
            levels = type(game.config).at(perception, reasoning).model_dump(mode="json")
            config = game.config.model_dump(mode="json")
            overrides[game.id] = {name: value for name, value in config.items() if value != levels[name]}
        return cls(perception=perception, reasoning=reasoning, overrides=overrides)


def recorded_states(game: Game[Any, Any], episode: EpisodeRecord) -> list[Any]:
    """The positions that were answered, and the last one.

    Raises:
        UsageError: One is no position of the game; the message says in which turn.
    """
    states = [(f"turn {turn.turn}", turn.state) for turn in episode.turns] + [("final_state", episode.final_state)]
    return [_position(game, where, state) for where, state in states]


def _position(game: Game[Any, Any], where: str, state: Any) -> Any:
    try:
        return game.from_data(state)
    except StateError as error:
        raise UsageError(f"{where}: {error}") from None


def recorded_action(game: Game[Any, Any], turn: TurnRecord) -> str | None:
    """The action of a turn in words, or None if the response held none.

    Raises:
        UsageError: It is no action of the game.
    """
    if turn.action is None:
        return None
    try:
        action = game.to_action(turn.action)
    except UsageError as error:
        raise UsageError(f"turn {turn.turn}: {error}") from None
    space = game.action_space  # whose `contains` overflows for integers of more than 64 bits
    if isinstance(space, spaces.Discrete) and not 0 <= action - int(space.start) < int(space.n):
        raise UsageError(f"turn {turn.turn}: an action of {game.name} is a value of {game.action_space}, not {action}")
    return game.format(action)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions that decide rules, chance and pixels."""
    packages = {package: version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "vlmgym": vlmgym.__version__, **packages}


def now() -> str:
    """The time, UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
