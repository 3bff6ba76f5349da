"""`vlmgym bench`: find the fastest number of workers and environments on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from vlmgym.cli.timing import Rates, legal_script, measure, opened, play
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.memory import check_memory, frame_bytes
from vlmgym.sandbox.envs.vector import make_vec
from vlmgym.sandbox.options import GameOptions
from vlmgym.workers.pool import check_num_workers, num_workers_for

ROUNDS = 3
TIE_RATIO = 0.95
"""Rates of at least this fraction of the best rate count as equally fast."""
ACTIONS = 10_000
"""Approximate number of actions in a script, large enough that games' caches cannot hold all of it."""
MIN_STEPS = 16
"""Minimum number of steps in a script."""

Layout = tuple[int, int]
"""Number of workers, number of environments."""


@dataclass(frozen=True, kw_only=True)
class BenchConfig(GameOptions):
    """Options of `vlmgym bench`."""

    game: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="GAME")] = "2048"
    """Id or name of the game."""
    workers: tuple[int, ...] = ()
    """Worker counts to try; if empty, 0, 1 and powers of 2 up to the number of cores."""
    envs: tuple[int, ...] = (16, 64, 256)
    """Environment counts to try."""
    seconds: float = 20.0
    """Total measuring time in seconds, excluding process startup."""

    def __post_init__(self) -> None:
        if not self.envs or min(self.envs) < 1:
            raise UsageError(f"every number in envs must be at least 1, got {self.envs}")
        for count in self.workers:
            check_num_workers("workers", count)
        if not 0 < self.seconds < float("inf"):
            raise UsageError(f"seconds must be a number above 0, got {self.seconds}")

    def layouts(self) -> list[Layout]:
        """List the layouts to try, with at most one worker per environment."""
        workers = sorted(set(self.workers)) or _worker_numbers(num_workers_for(max(self.envs), None))
        return [(count, envs) for count in workers for envs in sorted(set(self.envs)) if count <= envs]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommended layout and the reason."""

    num_workers: int
    num_envs: int
    reason: str


def bench(config: BenchConfig, console: Console | None = None) -> Recommendation:
    """Measure layouts, print a table and a recommendation, and return the recommendation."""
    console = console or Console()
    rates = measure_layouts(config)
    found = recommend(rates)
    best = max(measured.median for measured in rates.values())
    table = Table("workers", "environments", "steps/s: median (slowest to fastest)", "of the best", title=config.game)
    for (workers, envs), measured in rates.items():
        row = (str(workers), str(envs), str(measured), f"{measured.median / best:.0%}")
        table.add_row(*row, style="bold" if (workers, envs) == (found.num_workers, found.num_envs) else None)
    console.print(table)
    console.print(
        f"Recommended: make_vec({config.game!r}, num_envs={found.num_envs}, num_workers={found.num_workers}, "
        f"copy=False), {found.reason}. Leave one core free for other work, such as a model's preprocessing.",
        highlight=False,
    )
    return found


def measure_layouts(config: BenchConfig) -> dict[Layout, Rates]:
    """Measure the rates of all layouts, in alternating rounds."""
    game = config.make_game(config.game)
    layouts = config.layouts()
    if not layouts:
        raise UsageError(f"one of envs {config.envs} must be at least as large as one of workers {config.workers}")
    needed = sum(envs for _, envs in layouts) * frame_bytes(game)
    check_memory(needed, "the frames of these layouts", "use fewer envs or a smaller size")
    scripts = {
        envs: legal_script(game, envs, max(MIN_STEPS, ACTIONS // envs)) for envs in {envs for _, envs in layouts}
    }
    runners = {(workers, envs): partial(make_vec, game, envs, workers, copy=False) for workers, envs in layouts}
    with opened(runners) as made:
        turns = {layout: play(env, scripts[env.num_envs]) for layout, env in made.items()}
        return measure(turns, ROUNDS, config.seconds / len(layouts) / ROUNDS, config.game)


def recommend(rates: Mapping[Layout, Rates]) -> Recommendation:
    """Recommend, among the layouts that count as equally fast, the one with the fewest workers, then environments."""
    best, fastest = max(rates.items(), key=lambda item: item[1].median)
    enough = fastest.median * TIE_RATIO
    workers, envs = min(layout for layout, measured in rates.items() if measured.median >= enough)
    if rates[workers, envs].median == fastest.median:
        reason = "the fastest here"
    else:
        reason = (
            f"within {1 - TIE_RATIO:.0%} of the fastest ({best[0]} workers, {best[1]} environments), with fewer "
            "processes or environments"
        )
    return Recommendation(workers, envs, reason)


def _worker_numbers(cores: int) -> list[int]:
    return sorted({0, cores} | {1 << power for power in range(cores.bit_length()) if 1 << power <= cores})
