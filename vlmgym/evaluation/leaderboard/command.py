"""`vlmgym leaderboard FOLDER ...`: rank runs of a suite on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from vlmgym.errors import UsageError
from vlmgym.evaluation.leaderboard.entry import Entry, make_entry, ranked
from vlmgym.evaluation.leaderboard.page import leaderboard_page
from vlmgym.evaluation.report import LabelledRun, write_page
from vlmgym.evaluation.report.command import suite_tables
from vlmgym.evaluation.submission.check import check_submission
from vlmgym.evaluation.submission.metadata import FILE, read_metadata
from vlmgym.evaluation.suite import PrivateSalt, read_suite, suite_summary
from vlmgym.evaluation.summary import summarise_run
from vlmgym.evaluation.summary_table import run_title
from vlmgym.evaluation.verify import verify_run
from vlmgym.records.files import check_own_file, write_own_file
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import Summary
from vlmgym.records.store import StoredRun, open_run
from vlmgym.terminal import make_console
from vlmgym.workers.limits import check_num_workers, num_workers_for
from vlmgym.workers.pool import ProcessPool


@dataclass(frozen=True, kw_only=True)
class LeaderboardConfig:
    """Rank runs and submissions of a suite on one page, with their profiles, after verifying their scores."""

    run: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER ...")]
    """Folders of runs or submissions of the same suite."""
    output: Path = Path("leaderboard.html")
    """The page."""
    reports: bool = False
    """Write the report of each run that has none into a folder next to the page, for links into episodes."""
    verify: bool = True
    """Replay the responses of every run, as vlmgym verify and vlmgym submit check do, and show the result."""
    private_salt: Path | None = None
    """Salt of runs on private seeds, to verify that they derive from it."""
    workers: int | None = None
    """Worker processes that verify, at most 8 per core; 0 verifies in the main process. Default: one per core."""

    def __post_init__(self) -> None:
        check_num_workers("workers", self.workers)
        if not self.run:
            raise UsageError("name the folders of one or more runs")


def leaderboard(config: LeaderboardConfig) -> list[Entry]:
    """Write the page.

    Returns:
        The entries, best first.

    Raises:
        UsageError: A run is not of the same suite or lacks a game, or a file not written by vlmgym is in the way.
    """
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
    suite, entries = read_suite(name), list[Entry]()
    for number, run in enumerate(runs):
        metadata = read_metadata(run.folder.folder) if (run.folder.folder / FILE).exists() else None
        problems, games = _verified(run, metadata is not None, config, salt)
        games = games or summarise_run(run)
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
    """Return the problems of a run, None if it was not verified, and the summary of each game, if known."""
    if not config.verify:
        return None, {}
    if is_submission:
        checked = check_submission(run.folder.folder, config.workers)
        return checked.faults, checked.games
    verified = verify_run(run, config.workers, salt=salt)
    return verified.problems, verified.games


def _write_report(
    run: StoredRun, games: Mapping[str, Summary], label: str, number: int, config: LeaderboardConfig
) -> Path:
    """Write the report of a run into the folder next to the page."""
    output = OutputFolder(config.output.with_suffix(""))
    path = output.folder / f"{number}.html"
    summary = run.last_summary().model_copy(update={"games": games, "suite": suite_summary(run.config, games)})
    with output.reserved(), ProcessPool(num_workers_for(len(run.episodes), config.workers)) as workers:
        labelled, tables = LabelledRun(label, run, summary), suite_tables(run.config, summary)
        console = make_console(stderr=True)
        write_page(path, [labelled], title=run_title(run.config), workers=workers, tables=tables, console=console)
    return path
