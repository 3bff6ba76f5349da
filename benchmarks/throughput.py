"""Compare environment steps per second of vlmgym, Gymnasium and copying memory; also measure image encoding.

python -m benchmarks.throughput --json throughput.json
python -m benchmarks.throughput --parts steps --rounds 3 --seconds 0.5

Candidates take turns in rounds; tables show the median, slowest and fastest round. All candidates of a game play the
same actions: random legal ones in Shisen-Sho and Swap, uniformly random ones in 2048, where legal actions would differ
because gymnasium-2048 draws different tiles. After the last action, environments are reset, which is not timed, and the
same actions are played again. The part `environments` times a few steps of thousands of environments. There, actions
are legal in 2048, too, and environments start after different numbers of moves.

gymnasium-2048 renders 640 x 640 images with Gymnasium's wrappers `AddRenderObservation` and `ResizeObservation`, which
use OpenCV and are much faster than with Pillow, pygame or NumPy. `pip install -e .[bench]` installs the packages. The
limit is the speed of `np.copyto` for one frame per environment step into preallocated memory, with a source and a
destination for each environment, so that no frame stays in the processor's cache.

The part `encoding` runs `encoding.py`. It and OpenCV are imported only on use, as worker processes import this script.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import AddRenderObservation, ResizeObservation
from gymnasium_2048.envs.twenty_forty_eight import TwentyFortyEightEnv
from rich.console import Console
from rich.table import Table

from benchmarks.scripts import copying, spread_states, uniform_script
from vlmgym.cli.bench import Rates, Script, legal_script, measure, opened, play
from vlmgym.errors import UsageError
from vlmgym.runs.files import check_own_file, write_own_json
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.sandbox.envs.vector import make_vec
from vlmgym.sandbox.registry import make_game
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.workers.pool import available_cores

Part = Literal["steps", "environments", "memory", "start", "encoding"]
Makers = dict[str, Callable[[], VectorEnv[Any, Any, Any]]]

GAMES = ("2048", "shisensho", "swap")
WORKERS = (0, 1, 2)
LIMIT = "limit: one np.copyto of a frame per step"
ASYNC, SYNC = "AsyncVectorEnv, gymnasium-2048", "SyncVectorEnv, gymnasium-2048"
SCRIPTED = 20_000
"""Approximate number of actions in a script: more than the games' caches can hold."""
ENCODING = 0.3
"""Length of a trial in the part `encoding`, relative to other parts."""
SPREAD = {"2048": 100, "shisensho": 20, "swap": 20}
"""Environments start after fewer than this many moves; about the length of a random episode."""
ROOM = 1.25
"""Required free memory, relative to the size of all frames."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure the selected parts, and print tables and whether goals are reached."""

    size: int = 640
    """Image size in pixels."""
    num_envs: int = 64
    """Number of environments in the part `steps`."""
    envs: tuple[int, ...] = (16, 64, 256, 1024, 4096)
    """Numbers of environments in the part `environments`."""
    start_envs: int = 1024
    """Number of environments in the part `start`."""
    rounds: int = 5
    """Trials per candidate."""
    seconds: float = 1.0
    """Length of a trial in seconds."""
    parts: tuple[Part, ...] = ("steps", "environments", "memory", "start", "encoding")
    """Parts to measure."""
    json: Path | None = None
    """Write the results to this file."""

    def __post_init__(self) -> None:
        if min(self.rounds, self.num_envs, self.start_envs, *self.envs) < 1 or self.seconds <= 0:
            raise UsageError("rounds, seconds and numbers of environments must be positive")

    @property
    def frame(self) -> int:
        """Size of an image in bytes."""
        return self.size * self.size * 3


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, the measured value, and whether the goal is reached."""

    description: str
    measured: str
    reached: bool


# Candidates ----------------------------------------------------------------------------------------------------------


def runner_name(game: str, workers: int, copy: bool) -> str:
    return f"vlmgym {game}, {workers} workers{', copy' if copy else ''}"


def own_sync_name(game: str) -> str:
    return f"SyncVectorEnv, vlmgym {game}"


def gymnasium_2048(size: int) -> gymnasium.Env[Any, Any]:
    """Create the environment of the package gymnasium-2048, with images as observations."""
    import cv2

    cv2.setNumThreads(1)  # threads slow down such small images
    env: gymnasium.Env[Any, Any] = TwentyFortyEightEnv(render_mode="rgb_array")
    return ResizeObservation(AddRenderObservation(env, render_only=True), (size, size))


def make_script(game: Game[Any, Any], num_envs: int) -> Script:
    steps = max(8, SCRIPTED // num_envs)
    return (uniform_script if game.name == "2048" else legal_script)(game, num_envs, steps)


# Parts ---------------------------------------------------------------------------------------------------------------


def games_at(size: int, console: Console) -> list[str]:
    """Return the games that can be drawn at a size; print why the others cannot."""
    games = list(GAMES)
    for name in GAMES:
        try:
            make_game(name, size=size)
        except UsageError as error:
            console.print(f"skipped: {error}")
            games.remove(name)
    return games


def measure_steps(options: Options, names: list[str]) -> dict[str, Rates]:
    """Measure the part `steps`: all candidates with the same number of environments."""
    n, size = options.num_envs, options.size
    games = {name: make_game(name, size=size) for name in names}
    scripts = {name: make_script(game, n) for name, game in games.items()}
    makers: Makers = {}
    game_of: dict[str, str] = {}
    for name, workers, copy in itertools.product(names, WORKERS, (False, True)):
        candidate = runner_name(name, workers, copy)
        makers[candidate] = partial(make_vec, games[name], n, workers, copy=copy)
        game_of[candidate] = name
    reference = [partial(gymnasium_2048, size)] * n
    for copy in (False, True):
        suffix = ", copy" if copy else ""
        makers[ASYNC + suffix] = partial(AsyncVectorEnv, reference, copy=copy)
        makers[SYNC + suffix] = partial(SyncVectorEnv, reference, copy=copy)
        game_of[ASYNC + suffix] = game_of[SYNC + suffix] = "2048"
    for name, game in games.items():
        makers[own_sync_name(name)] = partial(SyncVectorEnv, [partial(GameEnv, game)] * n, copy=False)
        game_of[own_sync_name(name)] = name
    with opened(makers) as made:
        turns = {name: play(env, scripts[game_of[name]]) for name, env in made.items()}
        return measure({LIMIT: copying(size, n), **turns}, options.rounds, options.seconds, "steps")


def measure_environments(options: Options, names: list[str], console: Console) -> dict[str, dict[int, Rates]]:
    """Measure the part `environments`: rates by number of environments, with and without workers."""
    results = {}
    scripts: dict[tuple[str, int], Script] = {}
    for name, workers in itertools.product(names, (0, WORKERS[-1])):
        numbers = [n for n in sorted(options.envs) if n >= workers]
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        while numbers and sum(numbers) * options.frame * ROOM > free:
            console.print(f"skipped: {numbers[-1]} environments do not fit into {free / 1e9:.1f} GB of free memory")
            numbers.pop()
        game = make_game(name, size=options.size)
        for n in numbers:
            if (name, n) not in scripts:
                states = spread_states(game, n, SPREAD[name])
                scripts[name, n] = legal_script(game, n, max(8, SCRIPTED // n), states=states)
        makers: Makers = {str(n): partial(make_vec, game, n, workers, copy=False) for n in numbers}
        with opened(makers) as envs:
            turns = {key: play(env, scripts[name, env.num_envs]) for key, env in envs.items()}
            rates = measure(turns, options.rounds, options.seconds, f"{name}, {workers} workers")
        results[runner_name(name, workers, False)] = {int(key): key_rates for key, key_rates in rates.items()}
    return results


def measure_memory(options: Options, names: list[str]) -> dict[str, float]:
    """Measure the part `memory`: bytes that each additional environment takes, summed over all processes."""
    small, large = options.num_envs, options.num_envs * 5
    results = {}
    for name, workers in itertools.product(names, WORKERS):
        sizes = [in_new_process(proportional_memory, name, n, workers, options.size) for n in (small, large)]
        results[runner_name(name, workers, False)] = (sizes[1] - sizes[0]) / (large - small)
    return results


def measure_start(options: Options, names: list[str]) -> dict[str, tuple[float, float]]:
    """Measure the part `start`: CPU seconds per worker, and wall seconds, until all environments have rendered."""
    return {
        runner_name(name, count, False): in_new_process(start_seconds, name, options.start_envs, count, options.size)
        for name, count in itertools.product(names, WORKERS)
    }


def in_new_process(work: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a new process, whose caches are empty, and return the result."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def proportional_memory(name: str, num_envs: int, workers: int, size: int) -> int:
    """Return the proportional set size (PSS) of this process and its children after some steps, in bytes."""
    game = make_game(name, size=size)
    script = legal_script(game, num_envs, 40)
    with closing(make_vec(game, num_envs, workers, copy=False)) as env:
        env.reset(seed=script.seed)
        for actions in script.steps:
            env.step(actions)
        pids = ["self", *(str(child.pid) for child in multiprocessing.active_children())]
        files = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    sizes = [line.split()[1] for text in files for line in text.splitlines() if line.startswith("Pss:")]
    return sum(map(int, sizes)) * 1024


def start_seconds(name: str, num_envs: int, workers: int, size: int) -> tuple[float, float]:
    """Return CPU seconds per worker (without workers, of this process) and wall seconds up to the first frames."""
    make_game(name, size=128)  # loads plugins, which should not be timed
    # Touch as much memory first, because a virtual machine gets memory from its host only on first use.
    np.zeros((num_envs, size, size, 3), np.uint8).fill(1)
    whose = resource.RUSAGE_CHILDREN if workers else resource.RUSAGE_SELF
    before, start = cpu_seconds(whose), time.perf_counter()
    with closing(make_vec(make_game(name, size=size), num_envs, workers, copy=False)) as env:
        env.reset(seed=0)
        wall = time.perf_counter() - start
    # The CPU time of children is available only after they have ended.
    return (cpu_seconds(whose) - before) / max(1, workers), wall


def cpu_seconds(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


# Tables -------------------------------------------------------------------------------------------------------------


def steps_table(rates: Mapping[str, Rates], options: Options) -> Table:
    limit, reference = rates[LIMIT].median, rates[ASYNC].median
    title = f"environment steps/s, {options.num_envs} environments, {options.size} x {options.size}"
    table = Table("candidate", "median", "slowest", "fastest", "x limit", "x AsyncVectorEnv", title=title)
    for name, rate in rates.items():
        numbers = (f"{value:,.0f}" for value in (rate.median, rate.slowest, rate.fastest))
        table.add_row(name, *numbers, f"{rate.median / limit:.2f}", f"{rate.median / reference:.1f}")
    return table


def environments_table(results: Mapping[str, Mapping[int, Rates]]) -> Table:
    numbers = sorted({n for rates in results.values() for n in rates})
    title = "environment steps/s by number of environments: median (slowest to fastest)"
    table = Table("candidate", *(f"{n:,}" for n in numbers), title=title)
    for name, rates in results.items():
        table.add_row(name, *(str(rates[n]) if n in rates else "skipped" for n in numbers))
    return table


def memory_table(results: Mapping[str, float], options: Options) -> Table:
    title = f"memory per environment = frame ({options.frame / 1e6:.2f} MB) + rest"
    table = Table("candidate", "MB in total", "KB without the frame", title=title)
    for name, size in results.items():
        table.add_row(name, f"{size / 1e6:.2f}", f"{(size - options.frame) / 1e3:.1f}")
    return table


def start_table(results: Mapping[str, tuple[float, float]], options: Options) -> Table:
    title = f"start of {options.start_envs} environments"
    table = Table("candidate", "CPU seconds per worker", "wall seconds", title=title)
    for name, (processor, wall) in results.items():
        table.add_row(name, f"{processor:.2f}", f"{wall:.2f}")
    return table


def step_goals(rates: Mapping[str, Rates], names: list[str]) -> Iterable[Goal]:
    median = {name: rate.median for name, rate in rates.items()}
    for copy in (False, True):
        best = max(median[runner_name("2048", workers, copy)] for workers in WORKERS)
        suffix = ", copy" if copy else ""
        ratio = best / median[ASYNC + suffix]
        yield Goal(f"2048{suffix}: at least 30 x AsyncVectorEnv{suffix}", f"{ratio:.1f} x", ratio >= 30)
    share = median[runner_name("2048", 0, False)] / median[LIMIT]
    yield Goal("2048 in one process: at least half of the copy limit", f"{share:.2f}", share >= 0.5)
    for game in names[1:]:
        factors = [median[runner_name("2048", n, False)] / median[runner_name(game, n, False)] for n in WORKERS]
        description = f"{game}: within a factor 2 of 2048, with 0, 1 and 2 workers"
        yield Goal(description, ", ".join(f"{factor:.2f}" for factor in factors), max(factors) <= 2)


def environments_goals(results: Mapping[str, Mapping[int, Rates]]) -> Iterable[Goal]:
    for name, rates in results.items():
        medians = [rate.median for rate in rates.values()]
        share = min(medians) / max(medians)
        description = f"{name}: flat from {min(rates)} to {max(rates)} environments (slowest / fastest at least 0.8)"
        yield Goal(description, f"{share:.2f}", share >= 0.8)


def start_goals(results: Mapping[str, tuple[float, float]], options: Options) -> Iterable[Goal]:
    for name, (processor, _) in results.items():
        description = f"{name}: {options.start_envs} environments start in less than 2 CPU seconds per worker"
        yield Goal(description, f"{processor:.2f} s", processor < 2)


def goals_table(goals: Iterable[Goal]) -> Table:
    table = Table("goal", "measured", "reached", title="goals")
    for goal in goals:
        table.add_row(goal.description, goal.measured, "[green]yes" if goal.reached else "[red]no")
    return table


def machine() -> dict[str, Any]:
    """Describe the machine and the versions of libraries."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": available_cores(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
        "opencv": metadata.version("opencv-python-headless"),
    }


def run(options: Options, console: Console) -> None:
    """Measure the selected parts, print tables and goals, and write the results."""
    if options.json is not None:
        check_own_file(options.json)
    numbers: dict[str, Any] = {"machine": machine()}
    console.print(", ".join(f"{key} {value}" for key, value in numbers["machine"].items()), highlight=False)
    names = games_at(options.size, console)
    goals: list[Goal] = []
    if "steps" in options.parts:
        rates = measure_steps(options, names)
        console.print(steps_table(rates, options))
        goals += step_goals(rates, names)
        numbers["steps"] = {name: measured.rounds for name, measured in rates.items()}
    if "environments" in options.parts:
        by_number = measure_environments(options, names, console)
        console.print(environments_table(by_number))
        goals += environments_goals(by_number)
        numbers["environments"] = {name: {n: r.rounds for n, r in rates.items()} for name, rates in by_number.items()}
    if "memory" in options.parts:
        if Path("/proc/self/smaps_rollup").exists():
            memory = measure_memory(options, names)
            console.print(memory_table(memory, options))
            numbers["memory"] = memory
        else:
            console.print("skipped: memory, which requires /proc")
    if "start" in options.parts:
        start = measure_start(options, names)
        console.print(start_table(start, options))
        goals += start_goals(start, options)
        numbers["start"] = start
    if "encoding" in options.parts:
        from benchmarks.encoding import encoders_table, measure_encoding, numbers_of

        kinds = measure_encoding(options.size, options.rounds, options.seconds * ENCODING)
        for title, encoded in kinds.items():
            console.print(encoders_table(encoded, title))
        numbers["encoding"] = {title: numbers_of(encoded) for title, encoded in kinds.items()}
    if goals:
        console.print(goals_table(goals))
    if options.json is not None:
        write_own_json(options.json, numbers)


def main() -> None:
    with reporting_errors():
        run(
            parse_options(Options, None, "python -m benchmarks.throughput"),
            Console(width=None if sys.stdout.isatty() else 120),
        )


if __name__ == "__main__":
    main()
