"""`vlmgym calibrate`: measure what the levels of a game do, and write its page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.status import Status

from vlmgym.calibration.claims import claims
from vlmgym.calibration.measure import Calibration, Samples, calibrate
from vlmgym.calibration.page import write_page
from vlmgym.calibration.plot import draw_plots
from vlmgym.calibration.subjects import SUBJECTS, subject_of
from vlmgym.errors import UsageError
from vlmgym.evaluation.files import replace_file, writing
from vlmgym.sandbox.datasets.extra import library

FEWEST = 5
"""Episodes and pictures that intervals need, at least."""


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """Measure what the difficulty levels of games do, and write a page with plots for each."""

    game: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME ...")] = ()
    """Names, for instance 2048 or shisensho_pictures; all that are declared if none is given."""
    episodes: int = 200
    """Episodes of random play at each level; an oracle plays fewer."""
    pictures: int = 300
    """Pictures that are read at each level."""
    out: Path = Path("docs/difficulty")
    """Folder of the pages."""

    def __post_init__(self) -> None:
        for name, value in (("episodes", self.episodes), ("pictures", self.pictures)):
            if value < FEWEST:
                raise UsageError(f"{name} is at least {FEWEST}, not {value}")


def calibrate_games(config: CalibrateConfig, console: Console | None = None) -> list[Calibration]:
    """Measure and write `NAME.md` and `NAME.png` of each subject.

    Raises:
        UsageError: A subject is unknown, the pictures are too few, or scikit-learn is not installed.
        OutputError: A file cannot be written.
    """
    console = console or Console(stderr=True)
    subjects = [subject_of(name) for name in config.game or SUBJECTS]
    with writing(config.out):
        config.out.mkdir(parents=True, exist_ok=True)
    found = []
    threads = library("threadpoolctl", "calibrate", "tasks")
    for subject in subjects:
        # The matrices are small. The limit is for one `with`: after it, it would no longer be one.
        with threads.threadpool_limits(1), console.status(subject.name) as status:
            samples = Samples(config.episodes, config.pictures)
            measured = calibrate(subject, samples, partial(_tell, status, subject.name))
        command = f"vlmgym calibrate {subject.name} --episodes {config.episodes} --pictures {config.pictures}"
        replace_file(config.out / f"{subject.name}.png", draw_plots(measured))
        page = config.out / f"{subject.name}.md"
        replace_file(page, write_page(measured, command).encode())
        console.print(f"{page}: {_verdict(measured)}", highlight=False)
        found.append(measured)
    return found


def _tell(status: Status, name: str, under_way: str) -> None:
    status.update(f"{name}: {under_way}")


def _verdict(measured: Calibration) -> str:
    failed = [claim.words for claim in claims(measured) if not claim.holds]
    return f"does not hold: {'; '.join(failed)}" if failed else "every claim holds"
