"""Train tiny models to play whole games from images, and compare ways of training.

    .venv-train/bin/python -m benchmarks.miniature                          # all games and seeds: hours
    .venv-train/bin/python -m benchmarks.miniature --games 2048 --seeds 0   # part of it

Every arm takes the same number of steps after its start. G0 starts from demonstrations on grey images, the others from
demonstrations of play. All models play whole games on the same held-out seeds. Each result is a small file in
`--results`. A run with a result is neither trained nor played again, on any machine, so the command can be stopped and
continued. Every core runs one game with one seed, in a separate process. Writes a page and its images next to the
folder of results, by default docs/learning/whole_games.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.errors import UsageError
from vlmgym.terminal import make_console
from vlmgym.workers.limits import available_cores

from .cells import Cell, cells, measure_cells, measure_policies
from .games import GAMES
from .page import write_page


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, play whole games, and write a page."""

    games: tuple[str, ...] = tuple(GAMES)
    """Games."""
    seeds: tuple[int, ...] | None = None
    """Seeds of training. Default: all."""
    runs: tuple[str, ...] | None = None
    """Runs, such as "G1, GRPO". Default: all."""
    episodes: int = 200
    """Held-out games per measurement."""
    output_dir: Path = Path("logs/miniature")
    """Folder of training runs."""
    results: Path = Path("docs/learning/whole_games")
    """Folder of results."""
    jobs: int | None = None
    """Number of processes. Default: the number of cores."""

    def __post_init__(self) -> None:
        for name, given, known in (
            ("game", self.games, [*GAMES]),
            ("seed", self.seeds, [cell.seed for cell in cells()]),
            ("run", self.runs, [cell.run for cell in cells()]),
        ):
            for value in given or ():
                if value not in known:
                    choices = ", ".join(repr(each) for each in dict.fromkeys(known))
                    raise UsageError(f"unknown {name} {value!r}, choose from: {choices}")
        if self.episodes < 2:
            raise UsageError(f"episodes must be at least 2, got {self.episodes}")
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"jobs must be at least 1, got {self.jobs}")


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.miniature")
    chosen = [
        cell
        for cell in cells()
        if cell.game in options.games
        and (options.seeds is None or cell.seed in options.seeds)
        and (options.runs is None or cell.run in options.runs)
    ]
    if not chosen:
        raise UsageError("none of these --games has these --runs with these --seeds")
    for folder in (options.output_dir, options.results):
        folder.mkdir(parents=True, exist_ok=True)
    for game in options.games:
        measure_policies(game, options.results, options.episodes)
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in chosen:
        groups.setdefault((cell.game, cell.seed), []).append(cell)
    longest_first = sorted(groups.values(), key=lambda group: -GAMES[group[0].game].batches * len(group))
    failures = []
    jobs = options.jobs or available_cores()
    pool = ProcessPoolExecutor(min(jobs, len(groups)), get_context("spawn"), torch.set_num_threads, (1,))
    try:
        arguments = (options.output_dir.resolve(), options.results, options.episodes)
        for measured in as_completed([pool.submit(measure_cells, group, *arguments) for group in longest_first]):
            write_page(options.results)
            if (error := measured.exception()) is not None:
                make_console(stderr=True).print(f"{error}; the other games continue", soft_wrap=True)
                failures.append(error)
    finally:
        pool.shutdown(cancel_futures=True)
    for error in failures:
        raise error


if __name__ == "__main__":
    with reporting_errors():
        main()
