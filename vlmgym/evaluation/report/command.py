"""Write the report of a finished or saved run: `vlmgym report RUN`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from vlmgym.errors import UsageError
from vlmgym.evaluation.config import WorkerOptions
from vlmgym.evaluation.report.facts import LabelledRun
from vlmgym.evaluation.report.page import IMAGES, Skills, write_page
from vlmgym.evaluation.submission.metadata import FILE
from vlmgym.evaluation.suite import find_baselines
from vlmgym.evaluation.summary import updated_summary
from vlmgym.evaluation.summary_table import run_title, suite_table
from vlmgym.records.run import RunSummary
from vlmgym.records.run_folder import UNFINISHED
from vlmgym.records.store import StoredRun, open_run
from vlmgym.terminal import make_console
from vlmgym.workers.pool import ProcessPool


@dataclass(frozen=True, kw_only=True)
class ReportConfig(WorkerOptions):
    """Options of `vlmgym report`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Run folder."""
    images: str = str(IMAGES)
    """Number of episodes per game with images, or all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.images != "all" and not (self.images.isascii() and self.images.isdecimal()):
            raise UsageError(f"images must be a number of episodes or all, got {self.images!r}")


def report(config: ReportConfig) -> None:
    """Write the report of a saved run into its folder."""
    console = make_console()
    run = open_run(config.run)
    if (config.run / FILE).exists():
        raise UsageError(f"{config.run} is a submission: write its report with vlmgym leaderboard --reports")
    with run.folder.output.reserved(adopt=True):
        run.folder.output.check(run.folder.report, run.folder.folder / "report" / UNFINISHED)
        images = None if config.images == "all" else int(config.images)
        with config.pool(len(run.episodes)) as workers:
            write_report(run, updated_summary(run), workers, make_console(stderr=True), images)
    console.print(f"report  {run.folder.report}", soft_wrap=True)


def write_report(
    run: StoredRun,
    summary: RunSummary,
    workers: ProcessPool,
    console: Console,
    images: int | None = IMAGES,
    *,
    path: Path | None = None,
    label: str | None = None,
) -> None:
    """Write the report of a run, by default into the run's folder and labelled with its policy; see `write_page`."""
    config, suite = run.config, summary.suite
    baselines = find_baselines(config)
    write_page(
        path or run.folder.report,
        [LabelledRun(label or config.policy.label, run, summary)],
        title=run_title(config),
        workers=workers,
        images=images,
        tables=[] if config.suite is None or suite is None else [suite_table(config.suite, suite)],
        skills=None if baselines is None else Skills.of(*baselines, summary.games),
        console=console,
    )
