"""Leaderboard entries, and their ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.evaluation.submission.metadata import Metadata, describe_policy, facts_of, recorded_cost
from vlmgym.evaluation.suite import mean_with_error, read_suite, suite_summary
from vlmgym.records.run import Estimate, RunRecord, Summary
from vlmgym.records.store import StoredRun
from vlmgym.statistics import mean_and_stderr


@dataclass(frozen=True)
class LeaderboardEntry:
    """A run on the leaderboard.

    Attributes:
        config: `run.json` of the run.
        metadata: Metadata of a submission; None for a run that is not one.
        policy: Policy and model of the run, and the models that its server reported.
        mean: Mean normalised score over the games of the run.
        games: Normalised score of each game, by id.
        skills: Normalised score of each skill, by name.
        scores: Score of each episode, by game and seed.
        perception_gap: Normalised score with text descriptions minus normalised score with images, over the episodes
            that have a result in both runs; None unless this run shows only images and was repeated with text instead,
            and neither run has problems.
        illegal: Fraction of turns with an illegal action.
        unparsable: Fraction of turns without a readable action.
        tokens: Completion tokens of all games; None if not counted.
        cost: Cost of all games, in US dollars for a submission; None if unknown.
        problems: Number of faults found by `vlmgym verify` or `vlmgym submit check`; None if neither was run.
        report: Report page of the run, if there is one.
    """

    config: RunRecord
    metadata: Metadata | None
    policy: str
    mean: Estimate
    games: Mapping[str, Estimate]
    skills: Mapping[str, Estimate]
    scores: Mapping[tuple[str, int], float]
    perception_gap: Estimate | None
    illegal: float
    unparsable: float
    tokens: int | None
    cost: float | None
    problems: int | None
    report: Path | None

    @property
    def label(self) -> str:
        """Name of the model; for a run that is not a submission, its policy and model."""
        return self.config.policy.label if self.metadata is None else self.metadata.model

    @property
    def prompt(self) -> str:
        """Contents of prompts: observation, chat and history if set, and the number of games if some are left out."""
        prompts = self.config.prompts
        words = [prompts.observation, *(["chat"] if prompts.chat else [])]
        history = {"history": prompts.history, "history images": prompts.history_images}
        words += [f"{name} {value}" for name, value in history.items() if value is not None]
        return ", ".join([*words, *([f"{len(self.games)} games"] if self.has_fewer_games else [])])

    @property
    def has_fewer_games(self) -> bool:
        """True if some games of the suite were left out because they have no description."""
        return len(self.games) < len(read_suite(self.config.suite or "").games)

    @property
    def sampling(self) -> str:
        """Sampling options that were set."""
        return ", ".join(f"{name} {value}" for name, value in facts_of(self.config)["sampling"].items())

    @property
    def cost_per_point(self) -> float | None:
        """Cost per 0.01 of mean score; None if the cost is unknown or the score is not above random."""
        return None if self.cost is None or self.mean[0] <= 0 else self.cost / (100 * self.mean[0])


def make_entry(
    run: StoredRun, games: Mapping[str, Summary], problems: int | None, metadata: Metadata | None = None
) -> LeaderboardEntry:
    """Make the entry of a suite run from the summary of each game and, for a submission, its metadata."""
    config, suite = run.config, suite_summary(run.config, games)
    if config.suite is None or suite is None:
        raise UsageError(f"{run.folder.folder} has no result of a suite")
    needed = [game.id for game in read_suite(config.suite).make_games(config.prompts.observation)]
    if missing := [game for game in needed if game not in suite.games or games[game].unfinished]:
        raise UsageError(f"{run.folder.folder} has no result for all episodes of {', '.join(missing)}")
    found = list(games.values())
    turns = max(1, sum(summary.turns for summary in found))
    tokens = [summary.completion_tokens for summary in found if summary.completion_tokens is not None]
    own = metadata is None and config.private_salt is None and run.folder.report.exists()
    return LeaderboardEntry(
        config=config,
        metadata=metadata,
        policy=describe_policy(config, games),
        mean=mean_with_error([result.normalised for result in suite.games.values()]),
        games={game: result.normalised for game, result in suite.games.items()},
        skills=suite.skills,
        scores={episode.key: episode.score for episode in run.episodes if episode.score is not None},
        perception_gap=None,
        illegal=sum((one.illegal_rate or 0.0) * one.turns for one in found) / turns,
        unparsable=sum((one.unparsable_rate or 0.0) * one.turns for one in found) / turns,
        tokens=sum(tokens) if tokens else None,
        cost=recorded_cost(games) if metadata is None else metadata.cost,
        problems=problems,
        report=run.folder.report if own else None,
    )


def ranked(entries: Sequence[LeaderboardEntry]) -> list[LeaderboardEntry]:
    """Sort entries, best first, and add the perception gap of runs that were repeated with text.

    Runs with all games come first, then runs with fewer games, then runs with problems.
    """
    texts = {_settings(one): one for one in entries if one.config.prompts.observation == "text" and not one.problems}
    found = []
    for entry in entries:
        if entry.config.prompts.observation == "image" and not entry.problems:
            text = texts.get(_settings(entry))
            entry = entry if text is None else replace(entry, perception_gap=perception_gap(text, entry))
        found.append(entry)
    return sorted(found, key=lambda entry: (bool(entry.problems), entry.has_fewer_games, -entry.mean[0]))


def perception_gap(text: LeaderboardEntry, image: LeaderboardEntry) -> Estimate | None:
    """Estimate the normalised score with text minus that with images, over episodes with a result in both runs."""
    gaps = []
    for game, baseline in read_suite(text.config.suite or "").games.items():
        keys = [key for key in text.scores if key[0] == game and key in image.scores]
        if keys:
            mean, error = mean_and_stderr([text.scores[key] - image.scores[key] for key in keys])
            gaps.append(baseline.normalise(baseline.random + mean, error))
    return mean_with_error(gaps) if gaps else None


def _settings(entry: LeaderboardEntry) -> tuple[object, ...]:
    """Return the settings that a run with images and its repetition with text must share."""
    return entry.label, entry.config.policy.model_dump_json(), replace(entry.config.prompts, observation="image")
