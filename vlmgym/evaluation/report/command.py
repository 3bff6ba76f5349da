"""Write the report of a finished or saved run: `vlmgym report RUN`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from vlmgym.errors import UsageError
from vlmgym.evaluation.report.facts import LabelledRun
from vlmgym.evaluation.report.page import IMAGES, PageTable, Skills, write_page
from vlmgym.evaluation.submission.metadata import FILE
from vlmgym.evaluation.suite import find_baselines, suite_rows
from vlmgym.evaluation.summary import updated_summary
from vlmgym.evaluation.summary_table import SUITE_COLUMNS, run_title
from vlmgym.records.run import RunRecord, RunSummary
from vlmgym.records.run_folder import UNFINISHED
from vlmgym.records.store import StoredRun, open_run
from vlmgym.terminal import make_console
from vlmgym.workers.limits import check_num_workers, num_workers_for
from vlmgym.workers.pool import ProcessPool


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Write report.html of a saved run: scores, curves and an episode viewer."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    images: str = str(IMAGES)
    """Number of episodes per game with images, or all."""
    workers: int | None = None
    """Number of worker processes that render images; 0 renders in the main process. Default: one per core."""

    def __post_init__(self) -> None:
        if self.images != "all" and not (self.images.isascii() and self.images.isdecimal()):
            raise UsageError(f"images must be a number of episodes or all, got {self.images!r}")
        check_num_workers("workers", self.workers)


def report(config: ReportConfig) -> None:
    """Write the report of a saved run into its folder."""
    console = make_console()
    run = open_run(config.run)
    if (config.run / FILE).exists():
        raise UsageError(f"{config.run} is a submission: write its report with vlmgym leaderboard --reports")
    with run.folder.reserved(adopt=True):
        run.folder.output.check(run.folder.report, run.folder.folder / "report" / UNFINISHED)
        images = None if config.images == "all" else int(config.images)
        with ProcessPool(num_workers_for(len(run.episodes), config.workers)) as workers:
            write_report(run, updated_summary(run), workers, make_console(stderr=True), images)
    console.print(f"report  {run.folder.report}", soft_wrap=True)


def write_report(
    run: StoredRun, summary: RunSummary, workers: ProcessPool, console: Console, images: int | None = IMAGES
) -> None:
    """Write the report of a run into its folder; see `write_page`."""
    labelled = LabelledRun(run.config.policy.label, run, summary)
    title, tables = run_title(run.config), suite_tables(run.config, summary)
    baselines = find_baselines(run.config)
    skills = None if baselines is None else Skills.of(*baselines, summary.games)
    write_page(
        run.folder.report,
        [labelled],
        title=title,
        workers=workers,
        images=images,
        tables=tables,
        skills=skills,
        console=console,
    )


def suite_tables(config: RunRecord, summary: RunSummary) -> list[PageTable]:
    """Make the table of a run of a suite."""
    if config.suite is None or summary.suite is None:
        return []
    note = "Normalised scores are 0 for random and 1 for the oracle."
    return [PageTable(config.suite, SUITE_COLUMNS, suite_rows(summary.suite), note)]
