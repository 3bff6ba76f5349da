"""A run on the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.evaluation.submission.metadata import Metadata, recorded_cost
from vlmgym.evaluation.suite import read_suite, suite_summary
from vlmgym.records.run import Estimate, Summary
from vlmgym.records.store import StoredRun


@dataclass(frozen=True)
class Entry:
    """A run on the leaderboard.

    Attributes:
        label: Name of the model, or policy and model of a run that is not a submission.
        observation: What its prompts show: `image`, `text` or `both`.
        date: Day on which the run started.
        mean: Mean normalised score over all games.
        games: Normalised score of each game, by its id.
        skills: Normalised score of each skill.
        perception_gap: Score with text descriptions minus that with images, for the same model.
        illegal: Fraction of turns with an illegal action.
        unparsable: Fraction of turns without a readable action.
        tokens: Completion tokens of all games; None if not counted.
        cost: Cost of all games, in US dollars for a submission; None if unknown.
        problems: Number of differences that `vlmgym verify` finds; None if it was not asked.
        seed: Seed of the first episode of each game.
        report: Report page of the run, if there is one.
    """

    label: str
    observation: str
    date: str
    mean: Estimate
    games: Mapping[str, Estimate]
    skills: Mapping[str, Estimate]
    perception_gap: Estimate | None
    illegal: float
    unparsable: float
    tokens: int | None
    cost: float | None
    problems: int | None
    seed: int
    report: Path | None

    @property
    def cost_per_point(self) -> float | None:
        """Cost per hundredth of the mean score; None without prices, or without a score above random."""
        return None if self.cost is None or self.mean[0] <= 0 else self.cost / (100 * self.mean[0])


def make_entry(
    run: StoredRun, games: Mapping[str, Summary], problems: int | None, metadata: Metadata | None = None
) -> Entry:
    """Make the entry of a run of a suite from the summary of each game, and from its metadata if it is a submission.

    Raises:
        UsageError: The run has no result for a game of the suite.
    """
    config, suite = run.config, suite_summary(run.config, games)
    if config.suite is None or suite is None or suite.score is None:
        raise UsageError(f"{run.folder.folder} has no result of a suite")
    if missing := [game for game in read_suite(config.suite).games if game not in suite.games]:
        raise UsageError(f"{run.folder.folder} has no result for {', '.join(missing)}")
    found = list(games.values())
    turns = sum(summary.turns for summary in found)
    tokens = [summary.completion_tokens for summary in found if summary.completion_tokens is not None]
    return Entry(
        label=config.policy.label if metadata is None else metadata.model,
        observation=config.prompts.observation,
        date=config.started[:10],
        mean=suite.score,
        games={game: result.normalised for game, result in suite.games.items()},
        skills=suite.skills,
        perception_gap=None,
        illegal=sum((one.illegal_rate or 0.0) * one.turns for one in found) / turns,
        unparsable=sum((one.unparsable_rate or 0.0) * one.turns for one in found) / turns,
        tokens=sum(tokens) if tokens else None,
        cost=recorded_cost(games) if metadata is None else metadata.cost,
        problems=problems,
        seed=config.seed,
        report=run.folder.report if run.folder.report.exists() else None,
    )


def ranked(entries: Sequence[Entry]) -> list[Entry]:
    """Sort entries, best first, and add the perception gap of those that were also run with text."""
    texts = {entry.label: entry.mean for entry in entries if entry.observation == "text"}
    found = []
    for entry in entries:
        if entry.observation == "image" and (text := texts.get(entry.label)) is not None:
            errors = [one[1] for one in (text, entry.mean) if one[1] is not None]
            entry = replace(
                entry, perception_gap=(text[0] - entry.mean[0], hypot(*errors) if len(errors) == 2 else None)
            )
        found.append(entry)
    return sorted(found, key=lambda entry: -entry.mean[0])
