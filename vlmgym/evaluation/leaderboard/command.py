"""`vlmgym leaderboard FOLDER ...`: rank runs of a suite on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from vlmgym.errors import UsageError
from vlmgym.evaluation.config import WorkerOptions
from vlmgym.evaluation.leaderboard.entry import LeaderboardEntry, make_entry, ranked
from vlmgym.evaluation.leaderboard.page import leaderboard_page
from vlmgym.evaluation.report import write_report
from vlmgym.evaluation.submission.check import check_submission
from vlmgym.evaluation.submission.metadata import find_metadata
from vlmgym.evaluation.suite import PrivateSalt, read_suite
from vlmgym.evaluation.summary import summarise_run, updated_summary
from vlmgym.evaluation.verify import verify_run
from vlmgym.records.files import check_own_file, write_own_file
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import Summary
from vlmgym.records.store import StoredRun, open_run
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class LeaderboardConfig(WorkerOptions):
    """Options of `vlmgym leaderboard`."""

    run: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER ...")]
    """Folders of runs or submissions of the same suite."""
    output: Path = Path("leaderboard.html")
    """The page."""
    reports: bool = False
    """Write a report of each run that has none, in a folder next to the page, so that the page links to episodes."""
    verify: bool = True
    """Replay the responses of every run, as vlmgym verify and vlmgym submit check do, and show the result."""
    private_salt: Path | None = None
    """File with the salt of runs on private seeds, to verify that the seeds derive from this salt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.run:
            raise UsageError("name the folders of one or more runs")


def leaderboard(config: LeaderboardConfig) -> list[LeaderboardEntry]:
    """Write the page, and return its entries in the order of `ranked`."""
    check_own_file(config.output)
    runs = [open_run(folder) for folder in config.run]
    names = list(dict.fromkeys(run.config.suite for run in runs))
    name = names[0]
    digest, *others = {run.config.private_salt for run in runs}
    if others:
        raise UsageError("all runs must use public seeds, or private seeds of the same salt")
    if digest is not None and config.verify and config.private_salt is None:
        raise UsageError("verifying runs on private seeds needs --private-salt; --no-verify skips it")
    if digest is not None and config.reports:
        raise UsageError("reports show private seeds: remove --reports")
    salt = None if config.private_salt is None else PrivateSalt.read(config.private_salt)
    if name is None or len(names) > 1:
        found = ", ".join(f"{run.folder.folder} is of {run.config.suite or 'no suite'}" for run in runs)
        raise UsageError(f"all runs must be of the same suite: {found}")
    suite, entries = read_suite(name), list[LeaderboardEntry]()
    for number, run in enumerate(runs):
        metadata = find_metadata(run.folder.folder)
        problems, games = _verified(run, metadata is not None, config, salt)
        entry = make_entry(run, games, None if problems is None else len(problems), metadata)
        if config.reports and entry.report is None:
            entry = replace(entry, report=_write_report(run, games, entry.label, number, config))
        entries.append(entry)
    entries = ranked(entries)
    write_own_file(config.output, leaderboard_page(name, suite, entries, config.output.parent, digest).encode())
    make_console().print(f"leaderboard {config.output}", soft_wrap=True)
    return entries


def _verified(
    run: StoredRun, is_submission: bool, config: LeaderboardConfig, salt: PrivateSalt | None
) -> tuple[Sequence[str] | None, Mapping[str, Summary]]:
    """Return the problems of a run (None if it was not verified) and the summary of each game."""
    if not config.verify:
        return None, summarise_run(run)
    if is_submission:
        problems, _, games = check_submission(run.folder.folder, config.workers)
    else:
        verified = verify_run(run, config.workers, salt=salt)
        problems, games = verified.problems, verified.games
    return problems, games or summarise_run(run)


def _write_report(
    run: StoredRun, games: Mapping[str, Summary], label: str, number: int, config: LeaderboardConfig
) -> Path:
    """Write the report of a run into the folder next to the page, and return its path."""
    output = OutputFolder(config.output.with_suffix(""))
    path = output.folder / f"{number}.html"
    summary = updated_summary(run, games)
    with output.reserved(), config.pool(len(run.episodes)) as workers:
        write_report(run, summary, workers, make_console(stderr=True), path=path, label=label)
    return path
