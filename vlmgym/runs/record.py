"""Records of episodes and runs: a public, versioned format (docs/record.md).

Each episode is written as one JSON line when it ends. Everything else is derived from these records: summary, videos,
curves, report page, rescoring, training data, and resuming.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import version
from typing import Annotated, Any, Literal, NamedTuple

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
from vlmgym.checks import MAX_COUNT
from vlmgym.errors import IllegalAction, StateError, UsageError, describe_validation_error, one_line
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
Amount = Annotated[Number, Field(ge=0)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]

METRICS: TypeAdapter[dict[str, Number | str]] = TypeAdapter(dict[str, Number | str])
"""Metrics of an episode."""

Timestamp = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\+00:00$")]
"""Time in the format of `now`, such as 2026-01-31T12:00:00+00:00."""

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
    prediction: Number | None = None
    prediction_exact: Number | None = None
    actions: tuple[Number, ...] = ()


class StatementsRecord(_Record):
    """Statements of a response that its game can check; see `Game.check_reasoning`.

    Attributes:
        checked: Number of statements.
        true: Number of true statements.
        first_false: Number of the first false statement, from 1; None if all are true.
    """

    checked: Count
    true: Count
    first_false: Count | None


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
        action: The action; None if unparsable. A list of all actions if the game takes several per turn.
        feedback: Why the response was rejected; empty if its action was played.
        reward: Reward components.
        info: Information about the step, as returned by the game.
        statements: Statements of the reasoning; None if the game checks none.
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
    statements: StatementsRecord | None = None
    latency: Amount | None = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cost: Amount | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    requests: Count | None = None
    model: str | None = None

    @property
    def is_rewarded(self) -> bool:
        """True if the action was played and the game rewarded it."""
        return self.outcome is Outcome.PLAYED and self.reward.game > 0

    @property
    def reasoning_accuracy(self) -> float | None:
        """Fraction of true statements; None without statements that can be checked."""
        statements = self.statements
        return statements.true / statements.checked if statements is not None and statements.checked else None


_allowed_data: set[str] = set()
_PATH = re.compile(r"[/\\~]|\.[A-Za-z]\w*$")
"""Text that may be the path of a file: it has a separator, a tilde or a suffix; the number `9.8` has none."""


def allow_data(*sources: str) -> None:
    """Let this process open data that records name: only the user may do so, since a record may be a stranger's."""
    _allowed_data.update(sources)


def allowed_data() -> tuple[str, ...]:
    """Return the data with which `allow_data` was called, and that of games of which a record was made here."""
    return tuple(_allowed_data)


def recorded_data(config: object) -> Iterator[str]:
    """Yield the data (files, folders, URLs, datasets on the Hub) that a recorded config or curriculum names.

    Includes options of Gymnasium environments, `NAME=VALUE`, that may be paths.
    """
    if isinstance(config, Mapping):
        for name, value in config.items():
            if name == "data" and isinstance(value, str):
                yield value
            elif name == "options" and isinstance(value, list):
                yield from (option for option in value if isinstance(option, str) and _PATH.search(option))
            else:
                yield from recorded_data(value)
    elif isinstance(config, list | tuple):
        for part in config:
            yield from recorded_data(part)


def check_data(config: object) -> None:
    """Raise `UsageError` unless the data that a recorded config or curriculum names may be opened."""
    for source in recorded_data(config):
        if source not in _allowed_data:
            raise UsageError(
                f"the record names the data {source!r}, which is opened only if you name it again: add --data (with "
                "--as-trained, --config data=...; in Python, the argument data)"
            )


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
        """Make the record of a game, whose data may then be opened in this process."""
        config = game.config.model_dump(mode="json")
        allow_data(*recorded_data(config))
        return cls(id=game.id, config=config, history=game.history)

    def game(self) -> Game[Any, Any]:
        """Make the game; equal records share one object, which caches its sprites.

        Raises:
            UsageError: The game is not installed, its config is invalid, or its data may not be opened (`allow_data`).
        """
        check_data(self.config)
        return _game(self.id, json.dumps(self.config))


@lru_cache(maxsize=64)
def _game(game_id: str, config: str) -> Game[Any, Any]:
    cls = game_class(game_id)
    try:
        game = cls(cls.Config.model_validate_json(config))
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
    def total_reward(self) -> float:
        """Sum of the total rewards of the turns."""
        return math.fsum(turn.reward.total for turn in self.turns)

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
    for location, state in states:
        try:
            restored.append(game.from_data(state))
        except StateError as error:
            raise UsageError(f"{location}: {error}") from None
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
            is_played = turn.outcome is Outcome.PLAYED
            action = game.answer.from_data(turn.action) if is_played else None
            state = (game.step(state, action, rng) if is_played else game.on_invalid(state, rng)).state
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
        return game.format_actions(game.recorded_actions(turn.action))
    except UsageError as error:
        raise UsageError(f"turn {turn.turn}: {error}") from None


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect rules, randomness and pixels."""
    packages = {package: version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "vlmgym": __version__, **packages}


def now() -> str:
    """Return the current time in UTC, in ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class CurriculumRecord(_Record):
    """Curriculum of a run.

    Attributes:
        file: Contents of the curriculum file.
        episodes: Planned number of episodes of each game, by id; determined by the file, the seed and the total.
    """

    file: dict[str, JsonValue]
    episodes: dict[str, int]


class RunRecord(_Record):
    """Configuration of a run: `run.json`.

    Attributes:
        record: Version of this format.
        started: Start time, UTC, ISO 8601.
        versions: Versions of Python and packages, as in `EpisodeRecord`.
        games: Games with their configurations. A curriculum has one for each stage, so ids may repeat.
        suite: Name of the suite, if any.
        difficulty: Difficulty levels; None for a curriculum, whose stages set the levels.
        curriculum: The curriculum, if any.
        policy: The policy.
        reward: Reward weights and shaping.
        prompts: Contents of prompts.
        max_turns: Turn limit of an episode.
        seed: Seed of the first episode of each game, or of the whole curriculum.
        episodes: Episodes per game, or in total for a curriculum.
        options: All options of the run, including those that do not affect episodes.
    """

    record: Literal[2] = RECORD_VERSION
    started: Timestamp
    versions: dict[str, str]
    games: tuple[GameRecord, ...]
    suite: str | None = None
    difficulty: DifficultyRecord | None = None
    curriculum: CurriculumRecord | None = None
    policy: PolicyRecord
    reward: RewardConfig
    prompts: PromptConfig
    max_turns: int
    seed: int
    episodes: Count
    options: dict[str, JsonValue]

    @property
    def game_ids(self) -> tuple[str, ...]:
        """Distinct ids of the games."""
        return tuple(dict.fromkeys(game.id for game in self.games))

    def episodes_of(self, game: str) -> int:
        """Return the planned number of episodes of a game, by its id."""
        return self.episodes if self.curriculum is None else self.curriculum.episodes.get(game, 0)


class StageSummary(_Record):
    """Results at one stage of a curriculum.

    Attributes:
        episodes: Number of results.
        score_mean: Mean score.
        score_stderr: Standard error of the mean; None for a single episode.
    """

    episodes: int
    score_mean: float
    score_stderr: float | None


class Summary(_Record):
    """Summary of one game. All means are over results: episodes that ended or reached the turn limit.

    Attributes:
        episodes: Number of results.
        unfinished: Number of episodes without a result, by status; episodes `not started` have no record.
        turns: Number of turns in the results.
        score_mean: Mean score; None without results.
        score_stderr: Standard error of the mean; None for fewer than two results, and for several stages, because the
            number of episodes at each stage depends on the results or the schedule.
        score_ci: 95% confidence interval of the mean: Wilson if the game ended every episode after one turn and with a
            score of 0 or 1, otherwise Student's t. None for fewer than two results, for several stages, and, with
            Student's t, for equal scores.
        score_max: Highest score.
        illegal_rate: Fraction of turns with an illegal action; None without turns.
        unparsable_rate: Fraction of turns without a readable action; None without turns.
        format_compliance: Mean format reward over turns; None without turns.
        perception_accuracy: Mean fraction of correct cells in `<perception>`, over turns; None if the game has no
            ground truth or no response has a `<perception>`.
        perception_exact_match: Fraction of turns with a fully correct `<perception>`; None in the same cases as
            `perception_accuracy`.
        prediction_accuracy: Mean fraction of correct cells among those that change, in `<prediction>`, over turns; None
            if the game does not ask for it.
        prediction_exact_match: Fraction of turns with a fully correct `<prediction>`; None in the same cases as
            `prediction_accuracy`.
        statements: Number of statements in the reasoning that could be checked; None if the game checks none.
        reasoning_accuracy: Mean fraction of true statements, over turns with statements; None without.
        reasoning_exact_match: Fraction of turns with statements in which all are true; None without.
        wrong_reasoning: Fraction of rewarded turns with statements in which one is false; None without.
        first_false_statement: Median number of the first false statement, from 1; None without.
        end_reasons: Number of results by end reason.
        metric_means: Mean and standard error of each numeric metric, by name.
        metric_counts: Number of episodes with each value of the other metrics, by name.
        prompt_tokens: Tokens of all prompts, including unfinished episodes; None if not counted.
        completion_tokens: Tokens of all responses, including unfinished episodes; None if not counted.
        cost: Cost of these tokens; None without prices.
        latency_p50: Median latency in seconds, including unfinished episodes; None for policies that run in the
            workers.
        latency_p95: 95th percentile of the latency in seconds; otherwise as `latency_p50`.
        stages: Results at each stage of a curriculum, by stage name.
        served_models: Number of turns by model name reported by the server, including unfinished episodes.
    """

    episodes: Count
    unfinished: dict[str, Count]
    turns: Count
    score_mean: Number | None
    score_stderr: Number | None
    score_ci: tuple[Number, Number] | None
    score_max: Number | None
    illegal_rate: Number | None
    unparsable_rate: Number | None
    format_compliance: Number | None
    perception_accuracy: Number | None
    perception_exact_match: Number | None
    prediction_accuracy: Number | None = None
    prediction_exact_match: Number | None = None
    statements: Count | None = None
    reasoning_accuracy: Number | None = None
    reasoning_exact_match: Number | None = None
    wrong_reasoning: Number | None = None
    first_false_statement: Number | None = None
    end_reasons: dict[str, Count]
    metric_means: dict[str, tuple[Number, Number | None]]
    metric_counts: dict[str, dict[str, Count]]
    prompt_tokens: Count | None
    completion_tokens: Count | None
    cost: Number | None
    latency_p50: Number | None
    latency_p95: Number | None
    stages: dict[str, StageSummary] = Field(default_factory=dict)
    served_models: dict[str, Count] = Field(default_factory=dict)


Estimate = tuple[float, float | None]
"""A mean and its standard error, which is None if unknown, as for a single episode."""


class SuiteResult(_Record):
    """Result on one game of a suite.

    Attributes:
        episodes: Number of results.
        score_mean: Mean score.
        score_stderr: Standard error of the mean; None for a single episode.
        random: Mean score of the random policy.
        oracle: Mean score of the oracle.
        normalised: Mean score scaled to 0 for the random policy and 1 for the oracle, and its standard error.
    """

    episodes: int
    score_mean: float
    score_stderr: float | None
    random: float
    oracle: float
    normalised: Estimate


class SuiteSummary(_Record):
    """Normalised results of a run of a suite.

    Attributes:
        games: Result of each game that has one, by id.
        skills: Mean of the normalised scores of the games that test each skill, if all of them are complete.
        score: Mean of the normalised scores of all games; None unless all games of the suite are complete.
    """

    games: dict[str, SuiteResult]
    skills: dict[str, Estimate]
    score: Estimate | None


class RunSummary(_Record):
    """Summary of a run: `summary.json`.

    Attributes:
        record: Version of this format.
        games: Summary of each game, by id.
        suite: Normalised results, for a run of a suite.
        stop_reason: Why the run stopped early, or None.
        seconds: Wall-clock time spent playing, summed over the sessions of the run; killed sessions are not counted.
        turns_per_second: Number of turns played in that time, per second.
    """

    record: Literal[2] = RECORD_VERSION
    games: dict[str, Summary]
    suite: SuiteSummary | None = None
    stop_reason: str | None
    seconds: Annotated[float, Field(ge=0, le=1e9)]
    turns_per_second: Amount


class GameRunRecord(_Record):
    """One game of a run in a document such as `logs/test_2048.json`: its summary, and its episodes ordered by seed."""

    record: Literal[2] = RECORD_VERSION
    summary: Summary
    episodes: tuple[EpisodeRecord, ...]


def game_run_document(summary: Summary, episodes: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the JSON of a `GameRunRecord` in chunks; each of `episodes`, the JSON of an episode, becomes one line."""
    yield f'{{"record": {RECORD_VERSION},\n"summary": {summary.model_dump_json(indent=1)},\n"episodes": ['.encode()
    for i, episode in enumerate(episodes):
        yield b",\n" if i else b"\n"
        yield episode
    yield b"\n]}\n"


def version_changes(config: RunRecord) -> str:
    """Return a message about the versions that have changed since a run started; empty if none has."""
    before, after = config.versions, versions()
    changed = [f"{name} {before.get(name)}" for name in after if before.get(name) != after[name]]
    return f"the run was started with {', '.join(changed)}" if changed else ""


def differences(before: RunRecord, after: RunRecord) -> Sequence[str]:
    """List the differences between two configurations that affect episodes, such as `max_turns was 100 and is 50`.

    A larger number of episodes is not a difference.
    """
    if (before.curriculum is None) != (after.curriculum is None):
        return ["it had no curriculum" if before.curriculum is None else "it had a curriculum"]
    if before.curriculum is not None and after.curriculum is not None:
        different = [*map(str, changes(before.curriculum.file, after.curriculum.file, "curriculum"))]
        if different:  # differences in the games follow from these
            return different
    fields = {"suite", "games", "policy", "reward", "prompts", "max_turns", "seed"}
    old, new = (run.model_dump(mode="json", include=fields) for run in (before, after))
    different = [*map(str, changes(old, new))]
    if after.episodes < before.episodes:
        different.append(f"episodes was {before.episodes} and is {after.episodes}")
    return different


class Change(NamedTuple):
    """A difference between two JSON values; as a string, `reward.illegal was None and is -1.0`.

    Attributes:
        path: Keys and indices, separated by dots.
        before: First value.
        after: Second value.
    """

    path: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.path} was {self.before!r} and is {self.after!r}"


def changes(before: object, after: object, path: str = "") -> Iterator[Change]:
    """Yield the differences between two JSON values; missing values count as None, and `True` differs from 1."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from changes(before.get(name), after.get(name), f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (a, b) in enumerate(zip(before, after)):
            yield from changes(a, b, f"{path}.{i}")
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield Change(path, before, after)
