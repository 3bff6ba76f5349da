"""Records of a run, `run.json` and `summary.json`, and the differences between two runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, JsonValue

from vlmgym.records.episode import (
    RECORD_VERSION,
    DifficultyRecord,
    EpisodeRecord,
    GameRecord,
    Number,
    PolicyRecord,
    Timestamp,
    _Record,
    versions,
)
from vlmgym.sandbox.core.prompt import PromptConfig
from vlmgym.sandbox.core.reward import RewardConfig


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
    episodes: int
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

    episodes: int
    unfinished: dict[str, int]
    turns: int
    score_mean: float | None
    score_stderr: float | None
    score_ci: tuple[float, float] | None
    score_max: float | None
    illegal_rate: float | None
    unparsable_rate: float | None
    format_compliance: float | None
    perception_accuracy: float | None
    perception_exact_match: float | None
    end_reasons: dict[str, int]
    metric_means: dict[str, tuple[float, float | None]]
    metric_counts: dict[str, dict[str, int]]
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: float | None
    latency_p50: float | None
    latency_p95: float | None
    stages: dict[str, StageSummary] = Field(default_factory=dict)
    served_models: dict[str, int] = Field(default_factory=dict)


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
    turns_per_second: Annotated[Number, Field(ge=0)]


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
        found = [*map(str, changes(before.curriculum.file, after.curriculum.file, "curriculum"))]
        if found:  # differences in the games follow from these
            return found
    fields = {"suite", "games", "policy", "reward", "prompts", "max_turns", "seed"}
    old, new = (run.model_dump(mode="json", include=fields) for run in (before, after))
    found = [*map(str, changes(old, new))]
    if after.episodes < before.episodes:
        found.append(f"episodes was {before.episodes} and is {after.episodes}")
    return found


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
