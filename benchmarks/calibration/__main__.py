"""Measure the effect of every difficulty level without a language model, and write a page with plots for each game.

    .venv/bin/python -m benchmarks.calibration 2048 --episodes 200 --images 200

Reproduces the pages in docs/difficulty; each page contains its command.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from benchmarks.calibration.checks import checks
from benchmarks.calibration.measure import Calibration, Samples, calibrate
from benchmarks.calibration.page import write_page
from benchmarks.calibration.plot import draw_plots
from benchmarks.calibration.spec import Spec
from benchmarks.calibration.specs import SPECS, spec_of
from vlmgym.checks import check_int
from vlmgym.errors import importing
from vlmgym.runs.files import write_file
from vlmgym.sandbox.options import GameNames
from vlmgym.terminal import parse_options, reporting_errors

FEWEST = 5
"""Minimum number of episodes and images for intervals."""


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """Command-line options."""

    game: GameNames = ()
    """Names, such as 2048 or shisensho_images. Default: all."""
    episodes: int = 200
    """Episodes per player and level; oracles of some games play fewer."""
    images: int = 300
    """Test images per level, and as many training images."""
    output_dir: Path = Path("docs/difficulty")
    """Output folder."""

    def __post_init__(self) -> None:
        for name, value in (("episodes", self.episodes), ("images", self.images)):
            check_int(name, value, FEWEST)


def calibrate_games(config: CalibrateConfig, console: Console | None = None) -> list[Calibration]:
    """Measure games and write `NAME.md` and `NAME.png` for each of them.

    Raises:
        UsageError: No spec exists for a game, the images are too few, or scikit-learn is not installed.
        OutputError: A file cannot be written.
    """
    console = console or Console(stderr=True)
    specs = [spec_of(name) for name in config.game or SPECS]
    with importing("calibrate", "tasks"):
        import threadpoolctl as threads
    return [_measure(spec, config, threads, console) for spec in specs]


def _measure(spec: Spec, config: CalibrateConfig, threads: Any, console: Console) -> Calibration:
    # One thread is fastest for small matrices. Each `with` needs a new limit, because exiting it restores the old one.
    with threads.threadpool_limits(1), console.status(spec.name) as status:
        samples = Samples(config.episodes, config.images)
        measured = calibrate(spec, samples, partial(_show, status, spec.name))
    command = f"python -m benchmarks.calibration {spec.name} --episodes {config.episodes} --images {config.images}"
    write_file(config.output_dir / f"{spec.name}.png", draw_plots(measured))
    write_file(config.output_dir / f"{spec.name}.md", write_page(measured, command).encode())
    console.print(f"{config.output_dir / spec.name}.md: {_summary(measured)}", highlight=False)
    return measured


def _show(status: Status, name: str, step: str) -> None:
    status.update(f"{name}: {step}")


def _summary(measured: Calibration) -> str:
    failed = [check.claim for check in checks(measured) if not check.holds]
    return f"claims that fail: {'; '.join(failed)}" if failed else "all claims hold"


if __name__ == "__main__":
    with reporting_errors():
        calibrate_games(parse_options(CalibrateConfig, None, "python -m benchmarks.calibration", __doc__))
