"""The page of a run that was just played, and of a saved one: `vlmgym report RUN`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from vlmgym.errors import UsageError
from vlmgym.evaluation.report.facts import LabelledRun
from vlmgym.evaluation.report.page import IMAGES, write_page
from vlmgym.evaluation.summary import summarize
from vlmgym.evaluation.table import run_title
from vlmgym.records.run_folder import UNFINISHED, RunFolder
from vlmgym.records.store import open_run
from vlmgym.terminal import make_console
from vlmgym.workers.pool import ProcessPool
from vlmgym.workers.process import check_num_workers, num_workers_for


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Make the page of a saved run again: report.html, with scores, curves and a viewer of all episodes."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    images: str = str(IMAGES)
    """Of how many episodes of each game the page has images, the first ones: a number, or all."""
    workers: int | None = None
    """Worker processes; 0 draws in this process. Default: one per core."""

    def __post_init__(self) -> None:
        if self.images != "all" and not (self.images.isascii() and self.images.isdecimal()):
            raise UsageError(f"images is a number of episodes or all, not {self.images!r}")
        check_num_workers("workers", self.workers)


def report(config: ReportConfig) -> None:
    """Write the page of a saved run into its folder and print where it is.

    Raises:
        UsageError: There is no run to read, or a page is there that vlmgym did not write.
        OutputError: The page cannot be written, or the run is being played.
    """
    console = make_console()
    run = open_run(config.run)
    with run.folder.reserved(adopt=True):
        run.folder.output.check(run.folder.report, run.folder.folder / "report" / UNFINISHED)
        summary = run.last_summary().model_copy(update={"games": summarize(run)})
        labelled = LabelledRun.of(run, summary)
        images = None if config.images == "all" else int(config.images)
        with ProcessPool(num_workers_for(len(run.episodes), config.workers)) as workers:
            write_report(run.folder, labelled, workers, make_console(stderr=True), images)
    console.print(f"page    {run.folder.report}", soft_wrap=True)


def write_report(
    folder: RunFolder, run: LabelledRun, workers: ProcessPool, console: Console, images: int | None = IMAGES
) -> None:
    """Write the page of a run into its folder.

    Args:
        folder: Where.
        run: The run.
        workers: Processes that draw.
        console: Where progress is shown.
        images: Of how many episodes of each game images are drawn; None: of all.

    Raises:
        UsageError: A record cannot be read.
        OutputError: A file cannot be written.
    """
    title = run_title(run.asked)
    write_page(folder.report, [run], title=title, workers=workers, images=images, console=console)
