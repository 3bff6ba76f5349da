"""Episode records: a public, versioned format (docs/record.md).

Each episode is written as one JSON line when it ends. Everything else is derived from these records: summary, videos,
curves, report page, rescoring, training data, and resuming.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import version
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from vlmgym import __version__
from vlmgym.errors import IllegalAction, StateError, UsageError, describe_validation_error, one_line, short_repr
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.prompt import PromptConfig
from vlmgym.sandbox.core.reward import Outcome, RewardConfig
from vlmgym.sandbox.registry import game_class

RECORD_VERSION: Literal[2] = 2
"""Incremented when a field changes meaning or is removed. Readers reject other versions and ignore unknown fields."""

LARGEST = 1e100
"""Maximum magnitude of numbers in a record, so that squares and sums in summaries stay finite."""


def _bounded(number: float) -> float:
    if not abs(number) <= LARGEST:
        raise ValueError(f"numbers must be at most {LARGEST:g} in magnitude, got {number:g}")
    return number


Number = Annotated[float, AfterValidator(_bounded)]
Count = Annotated[int, Field(ge=0, le=2**53)]


def _utc(text: str) -> str:
    try:
        same = datetime.fromisoformat(text).astimezone(timezone.utc).isoformat(timespec="seconds") == text
    except (ValueError, OverflowError):
        same = False
    if not same:
        raise ValueError(f"must be a UTC time in seconds such as 2026-01-31T12:00:00+00:00, got {short_repr(text)}")
    return text


METRICS: TypeAdapter[dict[str, Number | str]] = TypeAdapter(dict[str, Number | str])
"""Metrics of an episode."""

Timestamp = Annotated[str, AfterValidator(_utc)]
"""Time in the format of `now`."""

PACKAGES = ("numpy", "gymnasium", "gymnasium-2048", "pygame")
"""Packages that affect rules, randomness and pixels, in addition to vlmgym and Python."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RewardRecord(_Record):
    """Reward components of a turn; see `vlmgym.sandbox.core.reward.Scored`."""

    total: Number
    game: Number
    format: Number
    perception: Number | None
    perception_exact: Number | None


class TurnRecord(_Record):
    """One turn.

    Attributes:
        turn: Number of the turn, from 1.
        state: State before the turn, as the game's `to_record` returns it; for a Gymnasium environment, the seed
            and the number and digest of earlier actions.
        system: System prompt of a chat; None for a single prompt.
        prompt: Text of the prompt; in a chat, text of the last user message.
        response: Unchanged response of the policy.
        outcome: Played, illegal or unparsable.
        action: The action; None if unparsable.
        feedback: Why the response was rejected; empty if its action was played.
        reward: Reward components.
        info: Information about the step, as returned by the game.
        latency: Time to the response in seconds; None for policies that run in the workers.
        prompt_tokens: Tokens of prompt and images, if counted.
        completion_tokens: Tokens of the response, including hidden reasoning, if counted.
        cost: Cost of the tokens; None without prices.
        finish_reason: Why generation stopped, as reported by the server (`stop`, `length`).
        reasoning: Reasoning that the server returned separately.
        requests: Number of requests to the server, including retries; None without a server.
        model: Model name reported by the server.
    """

    turn: int
    state: JsonValue
    system: str | None = None
    prompt: str
    response: str
    outcome: Outcome
    action: JsonValue
    feedback: str
    reward: RewardRecord
    info: dict[str, JsonValue]
    latency: Annotated[Number, Field(ge=0)] | None = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cost: Annotated[Number, Field(ge=0)] | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    requests: Count | None = None
    model: str | None = None


class GameRecord(_Record):
    """A game and its configuration.

    Attributes:
        id: Id of the game.
        config: Full configuration.
        history: Number of past turns, with their images, that the game's prompts include by default.
    """

    id: str
    config: dict[str, JsonValue]
    history: int = 0

    @classmethod
    def of(cls, game: Game[object, object]) -> GameRecord:
        """Make the record of a game."""
        return cls(id=game.id, config=game.config.model_dump(mode="json"), history=game.history)

    def game(self) -> Game[Any, Any]:
        """Make the game; equal records share one object, which caches its sprites."""
        return _game(self.id, json.dumps(self.config))


@lru_cache(maxsize=64)
def _game(game_id: str, config: str) -> Game[Any, Any]:
    found = game_class(game_id)
    try:
        game = found(found.Config.model_validate_json(config))
    except ValidationError as error:
        raise UsageError(f"invalid configuration of {game_id}: {describe_validation_error(error)}") from None
    if game.id != game_id:
        raise UsageError(f"invalid configuration of {game_id}: it is a configuration of {game.id}")
    return game


class PolicyRecord(_Record):
    """A policy: its name and the options that affect its responses."""

    name: str
    options: dict[str, JsonValue] = {}

    @property
    def model(self) -> str:
        """Name of the model as given by the user, or an empty string."""
        model = self.options.get("model")
        return model if isinstance(model, str) else ""

    @property
    def label(self) -> str:
        """Name and model in one line; long checkpoint paths are truncated at the start."""
        return one_line(f"{self.name} {self.model if len(self.model) <= 60 else '...' + self.model[-57:]}")


Status = Literal["ended", "turn limit", "stopped", "error"]
"""How an episode ended: by the game, at the turn limit, because the run stopped, or with an error
(`EpisodeError`). Stopped and failed episodes have no score, and continue when the run is resumed."""


class EpisodeRecord(_Record):
    """One episode.

    Attributes:
        record: Version of this format.
        versions: Versions of Python and of the packages that affect rules, randomness and pixels.
        game: The game and its configuration.
        policy: The policy.
        reward: Reward weights and shaping.
        prompts: Contents of prompts.
        max_turns: Turn limit.
        seed: Seed of the episode.
        index: Index, from 0, among the run's episodes of this game, or among all episodes of a curriculum.
        attempt: 1, plus 1 for each time the episode was resumed.
        stage: Stage of the curriculum, if any.
        started: Start time, UTC, ISO 8601.
        turns: All turns.
        final_state: State after the last turn; None if the episode could not start.
        status: How the episode ended.
        end_reason: Why the game ended or the run stopped, `turn limit`, or the error message.
        score: Sum of the game rewards; None without a result.
        metrics: Metrics that the game computes for the episode.
    """

    record: Literal[2] = RECORD_VERSION
    versions: dict[str, str]
    game: GameRecord
    policy: PolicyRecord
    reward: RewardConfig
    prompts: PromptConfig
    max_turns: int
    seed: int
    index: int
    attempt: Annotated[Count, Field(ge=1)] = 1
    stage: str | None = None
    started: Timestamp
    turns: tuple[TurnRecord, ...]
    final_state: JsonValue
    status: Status
    end_reason: str
    score: Number | None
    metrics: dict[str, Number | str]

    @property
    def is_single_turn(self) -> bool:
        """True if the game itself ended after one turn, as single-turn tasks do."""
        return len(self.turns) == 1 and self.status == "ended"

    @model_validator(mode="after")
    def _reject_contradictions(self) -> EpisodeRecord:
        if (self.score is None) != (self.status in ("stopped", "error")):
            verb = "must" if self.score is None else "cannot"
            raise ValueError(f"an episode whose status is {self.status!r} {verb} have a score")
        if len(self.turns) > self.max_turns:
            raise ValueError(f"there are {len(self.turns)} turns, but max_turns is {self.max_turns}")
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
        """Game id and seed, unique within a run."""
        return self.game.id, self.seed

    @property
    def terminated(self) -> bool:
        """True if the game itself ended the episode."""
        return self.status == "ended"


class DifficultyRecord(_Record):
    """Difficulty of a run.

    Attributes:
        perception: Perceptual difficulty level.
        reasoning: Reasoning difficulty level.
        overrides: Config fields that differ from the values set by the levels, by game id.
    """

    perception: int
    reasoning: int
    overrides: dict[str, dict[str, JsonValue]]

    @classmethod
    def of(cls, perception: int, reasoning: int, games: Iterable[Game[Any, Any]]) -> DifficultyRecord:
        """Record the difficulty of games made at these levels, with any overrides."""
        overrides = {}
        for game in games:
            levels = type(game.config).at(perception, reasoning).model_dump(mode="json")
            config = game.config.model_dump(mode="json")
            overrides[game.id] = {name: value for name, value in config.items() if value != levels[name]}
        return cls(perception=perception, reasoning=reasoning, overrides=overrides)


def recorded_states(game: Game[Any, Any], episode: EpisodeRecord) -> list[Any]:
    """Restore the state before each turn, and the final state; empty if the episode could not start."""
    if episode.final_state is None and episode.status == "error" and not episode.turns:
        return []
    if game.replayed:
        return [*_replayed_states(game, episode)]
    states = [(f"turn {turn.turn}", turn.state) for turn in episode.turns] + [("final_state", episode.final_state)]
    restored = []
    for where, state in states:
        try:
            restored.append(game.from_data(state))
        except StateError as error:
            raise UsageError(f"{where}: {error}") from None
    return restored


def _replayed_states(game: Game[Any, Any], episode: EpisodeRecord) -> Iterator[Any]:
    """Yield the states of `recorded_states` by replaying the turns."""
    rng = np.random.default_rng(episode.seed)
    state = game.start_at(episode.seed, rng)
    for turn in episode.turns:
        if game.to_record(state) != turn.state:
            raise UsageError(f"turn {turn.turn}: this is not the state that the earlier turns lead to")
        yield state
        try:
            played = turn.outcome is Outcome.PLAYED
            action = game.action_from_data(turn.action) if played else None
            state = (game.step(state, action, rng) if played else game.on_invalid(state, rng)).state
        except (UsageError, IllegalAction, StateError) as error:
            raise UsageError(f"turn {turn.turn}: {error}") from None
    if game.to_data(state) != episode.final_state:
        raise UsageError("final_state: this is not the state that the turns lead to")
    yield state


def recorded_action(game: Game[Any, Any], turn: TurnRecord) -> str | None:
    """Format the action of a turn; None if the response was unparsable."""
    if turn.action is None:
        return None
    try:
        action = game.action_from_data(turn.action)
    except UsageError as error:
        raise UsageError(f"turn {turn.turn}: {error}") from None
    return game.format(action)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect rules, randomness and pixels."""
    packages = {package: version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "vlmgym": __version__, **packages}


def now() -> str:
    """Return the current time in UTC, in ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
