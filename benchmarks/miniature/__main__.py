"""Train tiny models to play whole games from images, and compare ways of training.

    .venv-train/bin/python -m benchmarks.miniature                          # all games and seeds: hours
    .venv-train/bin/python -m benchmarks.miniature --games 2048 --seeds 0   # part of it

In each game, all runs that continue another run take the same number of steps. G0 continues a run that was trained on
demonstrations with grey images; the others continue one with true images. All models play whole games on the same
held-out seeds. Each result is a small file in `--results`. A run with a result is neither trained nor played again, on
any machine, so the command can be stopped and continued. Every core runs one game with one seed, in a separate process.
Writes a page and its images next to the folder of results, by default docs/learning/whole_games.md.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from vlmgym.errors import UsageError
from vlmgym.terminal import make_console, parse_options, reporting_errors
from vlmgym.workers.pool import available_cores

from .cells import cells, measure_policies
from .games import GAMES
from .page import write_page


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, play whole games, and write a page."""

    games: tuple[str, ...] = tuple(GAMES)
    """Games to train on."""
    seeds: tuple[int, ...] | None = None
    """Training seeds. Default: all."""
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
    torch.set_num_threads(1)
    console = make_console()
    for folder in (options.output_dir, options.results):
        folder.mkdir(parents=True, exist_ok=True)
    for game in options.games:
        measure_policies(game, options.results, options.episodes)
    groups = dict.fromkeys((cell.game, cell.seed) for cell in chosen)
    if len(groups) > 1 and (jobs := options.jobs or available_cores()) > 1:
        longest_first = sorted(groups, key=lambda group: -GAMES[group[0]].batches)
        measure_in_parallel(longest_first, options, jobs)
    else:
        for cell in chosen:
            console.print(f"{cell.game}, seed {cell.seed}: {cell.run}", soft_wrap=True)
            cell.measure(options.output_dir.resolve(), options.results, options.episodes)
            write_page(options.results)
    write_page(options.results)


def measure_in_parallel(groups: Sequence[tuple[str, int]], options: Options, jobs: int) -> None:
    """Run this command once per game and seed, in up to `jobs` processes at a time; raise `UsageError` if any fails."""
    runs = [] if options.runs is None else ["--runs", *options.runs]
    folders = ["--output-dir", str(options.output_dir), "--results", str(options.results)]
    command = [sys.executable, "-m", "benchmarks.miniature", *runs, *folders, "--episodes", str(options.episodes)]
    waiting, running, failed = [*groups], dict[subprocess.Popen[bytes], str](), list[str]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                game, seed = waiting.pop(0)
                process = subprocess.Popen([*command, "--games", game, "--seeds", str(seed)])
                running[process] = f"{game} with seed {seed}"
            time.sleep(0.2)
            for process in [each for each in running if each.poll() is not None]:
                name = running.pop(process)
                failed += [name] if process.returncode else []
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    if failed:
        raise UsageError(f"failed, as stated above: {', '.join(failed)}; run the command again to continue")


if __name__ == "__main__":
    with reporting_errors():
        main()
