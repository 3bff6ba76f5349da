"""The record of a run and its summary: `run.json` and `summary.json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import Field, JsonValue

from vlmgym.records.episode import (
    RECORD_VERSION,
    DifficultyRecord,
    EpisodeRecord,
    GameRecord,
    Number,
    PolicyRecord,
    _Record,
    versions,
)
from vlmgym.sandbox.core.reward import RewardConfig


class CurriculumRecord(_Record):
    """What decided at which stage of which game an episode was played.

    Attributes:
        file: What the curriculum's file said.
        episodes: How many episodes of the run are of each game, by its id: the file and the seed decide.
    """

    file: dict[str, JsonValue]
    episodes: dict[str, int]


class RunRecord(_Record):
    """What was asked for when a run was begun: `run.json`.

    Attributes:
        record: Version of this format.
        started: When it was begun, UTC, ISO 8601.
        versions: As in an episode.
        games: The games and their configurations; of a curriculum those of all stages, which may have the same id.
        difficulty: Difficulty levels of the games; None for a curriculum, which has its own.
        curriculum: The curriculum, if there is one.
        policy: Who plays.
        reward: Weights and shaping.
        history: How many earlier turns are part of a prompt.
        history_images: Of how many of these the images are shown again.
        max_turns: The limit of turns of an episode.
        seed: Seed of the first episode of each game.
        episodes: Episodes of each game; of a curriculum, of all games together.
        options: All options of the run, also those that decide nothing about an episode.
    """

    record: Literal[2] = RECORD_VERSION
    started: str
    versions: dict[str, str]
    games: tuple[GameRecord, ...]
    difficulty: DifficultyRecord | None = None
    curriculum: CurriculumRecord | None = None
    policy: PolicyRecord
    reward: RewardConfig
    history: int
    history_images: int
    max_turns: int
    seed: int
    episodes: int
    options: dict[str, JsonValue]

    @property
    def game_ids(self) -> tuple[str, ...]:
        """Ids of the games, each once."""
        return tuple(dict.fromkeys(game.id for game in self.games))

    def episodes_of(self, game: str) -> int:
        """How many episodes of a game the run has, by the game's id."""
        return self.episodes if self.curriculum is None else self.curriculum.episodes.get(game, 0)


class StageSummary(_Record):
    """What the results at one stage of a curriculum come to.

    Attributes:
        episodes: How many there are.
        score_mean: Mean score.
        score_stderr: Its standard error, None for a single episode.
    """

    episodes: int
    score_mean: float
    score_stderr: float | None


class Summary(_Record):
    """What the episodes of one game come to. All means are over results: ended, or at the turn limit.

    Attributes:
        episodes: How many results there are.
        unfinished: How many episodes have no result, by their status; `not begun` have no record either.
        turns: Turns of the results.
        score_mean: Mean score, None without results.
        score_stderr: Standard error of the mean (sample standard deviation over root n), None for a single episode, and
            for several stages: how many episodes each had follows from how they went, or from the schedule.
        score_ci: 95% confidence interval of the mean: by Student's t, but by Wilson if all scores are 0 or 1 and every
            episode was one of a single turn, whose score is a share; None for a single episode, for several stages, and
            if all scores are equal, where Student's would have no width.
        score_best: Highest score.
        illegal_rate: Share of turns whose action was illegal; None without turns, as the next two.
        unparsable_rate: Share of turns whose response held no action.
        format_mean: Mean format part over turns.
        perception_mean: Mean share of cells that `<perception>` had right, over turns; None if the game has no
            truth, or if no response has a `<perception>`.
        perception_exact_rate: Share of turns whose `<perception>` was wholly right; None likewise.
        ends: How many episodes ended for which reason.
        metric_means: Mean and standard error of each metric that is a number.
        metric_counts: How often each word of each metric that is a word occurred.
        prompt_tokens: Tokens of all prompts, unfinished episodes included; None if they were not counted.
        completion_tokens: Tokens of all responses likewise.
        cost: Price of them; None without prices.
        latency_median: Median seconds of a response; None where the policy runs beside the game.
        latency_p95: The seconds that 95% of the responses took at most.
        stages: Results at each stage of a curriculum, by its name.
        served_models: Number of turns that each model responded to, by its server's name for it.
    """

    episodes: int
    unfinished: dict[str, int]
    turns: int
    score_mean: float | None
    score_stderr: float | None
    score_ci: tuple[float, float] | None
    score_best: float | None
    illegal_rate: float | None
    unparsable_rate: float | None
    format_mean: float | None
    perception_mean: float | None
    perception_exact_rate: float | None
    ends: dict[str, int]
    metric_means: dict[str, tuple[float, float | None]]
    metric_counts: dict[str, dict[str, int]]
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: float | None
    latency_median: float | None
    latency_p95: float | None
    stages: dict[str, StageSummary] = Field(default_factory=dict)
    served_models: dict[str, int] = Field(default_factory=dict)


class RunSummary(_Record):
    """What a run comes to: `summary.json`.

    Attributes:
        record: Version of this format.
        games: A summary for each game, by its id.
        stopped: Why the run stopped before everything was played, or None.
        seconds: Wall time of playing, of all parts of the run that were not cut off.
        turns_per_second: Turns played in that time, over it.
    """

    record: Literal[2] = RECORD_VERSION
    games: dict[str, Summary]
    stopped: str | None
    seconds: Number
    turns_per_second: Number


class GameRunRecord(_Record):
    """One game of a run in one document, `logs/test_2048.json`: summary and episodes in the order of their seeds."""

    record: Literal[2] = RECORD_VERSION
    summary: Summary
    episodes: tuple[EpisodeRecord, ...]


def game_run_document(summary: Summary, episodes: Iterable[bytes]) -> Iterator[bytes]:
    """The JSON of a `GameRunRecord`, one episode a line, in pieces: it may be larger than memory.

    Args:
        summary: The summary.
        episodes: The JSON of each episode.
    """
    yield f'{{"record": {RECORD_VERSION},\n"summary": {summary.model_dump_json(indent=1)},\n"episodes": ['.encode()
    for i, episode in enumerate(episodes):
        yield b",\n" if i else b"\n"
        yield episode
    yield b"\n]}\n"


def begun_with(asked: RunRecord) -> str:
    """Versions of a run that are other ones now, as `the run was begun with NAME VERSION`, or an empty text."""
    before, after = asked.versions, versions()
    changed = [f"{name} {before.get(name)}" for name in after if before.get(name) != after[name]]
    return f"the run was begun with {', '.join(changed)}" if changed else ""
