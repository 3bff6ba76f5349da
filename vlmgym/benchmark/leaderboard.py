"""Entries of a leaderboard: runs of a suite, verified and ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import PurePath

from vlmgym.benchmark.suites import mean_with_error, read_suite, suite_summary
from vlmgym.errors import UsageError, short_repr
from vlmgym.evaluation.compare import score_gaps, with_controls
from vlmgym.policies.base import SamplingOptions
from vlmgym.runs.record import Estimate, RunRecord, SuiteSummary, Summary
from vlmgym.runs.store import StoredRun
from vlmgym.statistics import mean_and_stderr


@dataclass(frozen=True)
class LeaderboardEntry:
    """A run on the leaderboard.

    Attributes:
        run: The run.
        summaries: Summary of each game, by id.
        suite: Normalised scores of games and skills.
        problems: Number of differences found by `vlmgym verify`; None if the run was not verified.
        perception_gap: Normalised score with text descriptions minus normalised score with images, over the episodes
            that have a result in both runs; None unless this run shows only images and was repeated with text instead,
            and neither run has problems.
        sight_gap: Normalised score with images minus that with grey images; None as for `perception_gap`.
    """

    run: StoredRun
    summaries: Mapping[str, Summary]
    suite: SuiteSummary
    problems: int | None
    perception_gap: Estimate | None = None
    sight_gap: Estimate | None = None

    @property
    def config(self) -> RunRecord:
        """Configuration of the run."""
        return self.run.config

    @property
    def mean(self) -> Estimate:
        """Mean normalised score over the games of the run."""
        return mean_with_error([result.normalised for result in self.suite.games.values()])

    @property
    def policy(self) -> str:
        """Policy and model of the run, and the models that its server reported."""
        served = dict.fromkeys(name for summary in self.summaries.values() for name in summary.served_models)
        return f"{self.config.policy.label}{f', served as {short_repr(list(served))[1:-1]}' if served else ''}"

    @property
    def label(self) -> str:
        """Name of the model without its organisation or folder; if the policy has no model, its own name."""
        return PurePath(self.config.policy.model or self.config.policy.name).name

    @property
    def prompt(self) -> str:
        """Contents of prompts: observation, other settings, and the number of games if some are left out."""
        prompts = self.config.prompts
        words = [prompts.observation, *(["chat"] if prompts.chat else [])]
        history = {"history": prompts.history, "history images": prompts.history_images}
        words += [f"{name} {value}" for name, value in history.items() if value is not None]
        words += [f"images {prompts.images}"] if self.is_control else []
        words += prompts.scaffolding
        return ", ".join([*words, *([f"{len(self.suite.games)} games"] if self.has_fewer_games else [])])

    @property
    def has_fewer_games(self) -> bool:
        """True if some games of the suite were left out because they have no description."""
        return len(self.suite.games) < len(read_suite(self.config.suite or "").games)

    @property
    def is_control(self) -> bool:
        """True if the run is a control experiment with other images."""
        return self.config.prompts.images != "true"

    @property
    def sampling(self) -> str:
        """Sampling options that were set."""
        options = {field.name: self.config.policy.options.get(field.name) for field in fields(SamplingOptions)}
        return ", ".join(f"{name} {value}" for name, value in options.items() if value not in (None, []))


def make_entry(run: StoredRun, games: Mapping[str, Summary], problems: int | None) -> LeaderboardEntry:
    """Make the entry of a complete run of a suite from the summary of each game."""
    config, suite = run.config, suite_summary(run.config, games)
    if config.suite is None or suite is None:
        raise UsageError(f"{run.folder.folder} has no result of a suite")
    needed = [game.id for game in read_suite(config.suite).make_games(config.prompts.observation)]
    if missing := [game for game in needed if game not in suite.games or games[game].unfinished]:
        raise UsageError(f"{run.folder.folder} has no result for all episodes of {', '.join(missing)}")
    return LeaderboardEntry(run, games, suite, problems)


def ranked(entries: Sequence[LeaderboardEntry]) -> list[LeaderboardEntry]:
    """Sort entries, best first, and add the gaps of runs that were repeated with text or with grey images.

    Runs with all games come first, then runs with fewer games, then control experiments, then runs with problems.
    """
    sound = [entry for entry in entries if not entry.problems]
    with_gaps = [
        replace(entry, perception_gap=gap(text, entry), sight_gap=gap(entry, grey))
        for entry, text, grey in with_controls(
            sound, lambda entry: (entry.config.policy.model_dump_json(), entry.config.prompts)
        )
    ]
    return sorted(
        [*with_gaps, *(entry for entry in entries if entry.problems)],
        key=lambda entry: (bool(entry.problems), entry.is_control, entry.has_fewer_games, -entry.mean[0]),
    )


def gap(first: LeaderboardEntry | None, second: LeaderboardEntry | None) -> Estimate | None:
    """Estimate the normalised score of one run minus that of another, over episodes with a result in both."""
    if first is None or second is None:
        return None
    gaps = []
    for game, baseline in read_suite(first.config.suite or "").games.items():
        if scores := score_gaps(first.run.scores, second.run.scores, game):
            mean, error = mean_and_stderr(scores)
            gaps.append(baseline.normalise(baseline.random + mean, error))
    return mean_with_error(gaps) if gaps else None
