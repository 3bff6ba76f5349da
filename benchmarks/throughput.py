"""Environment steps a second: vlmgym's runner, Gymnasium's, and the limit that memory sets; and images encoded.

python benchmarks/throughput.py --json throughput.json
python benchmarks/throughput.py --parts steps --rounds 3 --seconds 0.5

Contestants of a part take turns in rounds; the table shows the median and the slowest and fastest round. All of them
play the same actions: in Shisen-Sho and Swap random legal ones, in 2048 uniformly random ones (gymnasium-2048's own
chance differs, so its episodes do). The script of actions starts again, by a reset that is not timed, when it is over.
In the part `environments`, where a turn is a few steps of thousands of environments, actions are legal in 2048, too,
and the environments start after different numbers of moves.

gymnasium-2048 is made to give 640 x 640 images by Gymnasium's own wrappers, `AddRenderObservation` and
`ResizeObservation` (OpenCV, which of OpenCV, Pillow, pygame and NumPy was the fastest here by far); `pip install -e
.[bench]` installs what they need. The limit is `np.copyto` of one frame per environment step into preallocated memory,
64 sources to 64 destinations, so that no frame is in a processor's cache.

The part `encoding` is `encoding.py`: rates and bytes of PNG and JPEG files. It and OpenCV are imported where they are
used: worker processes import the script that started them, and its imports are not theirs to be measured.
"""

from __future__ import annotations

import itertools
import multiprocessing
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

from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.cli.timing import Rates, Script, Turn, legal_script, measure, opened, play, repeat, uniform_script
from vlmgym.errors import UsageError
from vlmgym.records.files import check_own_file, write_own_json
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.memory import available_memory
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.sandbox.envs.vector.make import make_vec
from vlmgym.sandbox.registry import make_game
from vlmgym.workers.limits import available_cores

Part = Literal["steps", "environments", "memory", "start", "encoding"]
Makers = dict[str, Callable[[], VectorEnv[Any, Any, Any]]]

GAMES = ("2048", "shisensho", "swap")
WORKERS = (0, 1, 2)
LIMIT = "limit: np.copyto of a frame a step"
ASYNC, SYNC = "AsyncVectorEnv, gymnasium-2048", "SyncVectorEnv, gymnasium-2048"
SCRIPTED = 20_000
"""About how many actions a script has: more than games keep in their caches."""
ENCODING = 0.3
"""Share of a turn's length in the part `encoding`, where at least all images are encoded once."""
SPREAD = {"2048": 100, "shisensho": 20, "swap": 20}
"""Moves over which environments are spread in the part `environments`: about an episode of random moves."""
ROOM = 1.25
"""Memory that must be free, over that of the frames."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure and print tables, and say which goals are reached."""

    size: int = 640
    """Side of the images."""
    num_envs: int = 64
    """Environments of every contestant in the part `steps`."""
    many: tuple[int, ...] = (16, 64, 256, 1024, 4096)
    """Numbers of environments in the part `environments`."""
    started: int = 1024
    """Environments that are started in the part `start`."""
    rounds: int = 5
    """Turns of each contestant."""
    seconds: float = 1.0
    """Length of a turn."""
    parts: tuple[Part, ...] = ("steps", "environments", "memory", "start", "encoding")
    """What is measured."""
    json: Path | None = None
    """Write all numbers to this file."""

    def __post_init__(self) -> None:
        if min(self.rounds, self.num_envs, self.started, *self.many) < 1 or self.seconds <= 0:
            raise UsageError("rounds, seconds and numbers of environments are more than 0")

    @property
    def frame(self) -> int:
        """Bytes of an image."""
        return self.size * self.size * 3


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, what was measured, and whether that reaches it."""

    words: str
    measured: str
    reached: bool


# Contestants ---------------------------------------------------------------------------------------------------------


def runner_name(game: str, workers: int, copy: bool) -> str:
    return f"vlmgym {game}, {workers} workers{', copy' if copy else ''}"


def own_sync_name(game: str) -> str:
    return f"SyncVectorEnv, vlmgym {game}"


def gymnasium_2048(size: int) -> gymnasium.Env[Any, Any]:
    """2048 of the gymnasium-2048 package whose observation is its image, at our size."""
    import cv2

    cv2.setNumThreads(1)  # so small an image takes longer in several
    env: gymnasium.Env[Any, Any] = TwentyFortyEightEnv(render_mode="rgb_array")
    return ResizeObservation(AddRenderObservation(env, render_only=True), (size, size))


def make_script(game: Game[Any, Any], num_envs: int) -> Script:
    steps = max(8, SCRIPTED // num_envs)
    return (uniform_script if game.name == "2048" else legal_script)(game, num_envs, steps)


def copying(size: int, num_envs: int) -> Turn:
    """The limit: one frame copied per environment step."""
    rng = np.random.default_rng(0)
    sources = rng.integers(0, 256, (num_envs, size, size, 3), np.uint8)
    shown = np.zeros_like(sources)

    def step() -> int:
        for source, target in zip(sources, shown):
            np.copyto(target, source)
        return num_envs

    return repeat(step)


# Parts ---------------------------------------------------------------------------------------------------------------


def measure_steps(options: Options) -> dict[str, Rates]:
    """All contestants, with the same number of environments."""
    n, size = options.num_envs, options.size
    games = {name: make_game(name, size=size) for name in GAMES}
    scripts = {name: make_script(game, n) for name, game in games.items()}
    makers: Makers = {}
    game_of: dict[str, str] = {}
    for name, workers, copy in itertools.product(GAMES, WORKERS, (False, True)):
        contestant = runner_name(name, workers, copy)
        makers[contestant] = partial(make_vec, games[name], n, workers, copy=copy)
        game_of[contestant] = name
    theirs = [partial(gymnasium_2048, size)] * n
    for copy in (False, True):
        suffix = ", copy" if copy else ""
        makers[ASYNC + suffix] = partial(AsyncVectorEnv, theirs, copy=copy)
        makers[SYNC + suffix] = partial(SyncVectorEnv, theirs, copy=copy)
        game_of[ASYNC + suffix] = game_of[SYNC + suffix] = "2048"
    for name, game in games.items():
        makers[own_sync_name(name)] = partial(SyncVectorEnv, [partial(GameEnv, game)] * n, copy=False)
        game_of[own_sync_name(name)] = name
    with opened(makers) as made:
        turns = {name: play(env, scripts[game_of[name]]) for name, env in made.items()}
        return measure({LIMIT: copying(size, n), **turns}, options.rounds, options.seconds, "steps")


def measure_environments(options: Options, console: Console) -> dict[str, dict[int, Rates]]:
    """Rates by number of environments, for each game, in this process and with workers."""
    found = {}
    scripts: dict[tuple[str, int], Script] = {}
    for name, workers in itertools.product(GAMES, (0, WORKERS[-1])):
        numbers = [n for n in sorted(options.many) if n >= workers]
        while numbers and (free := available_memory()) is not None and sum(numbers) * options.frame * ROOM > free:
            console.print(f"left out: {numbers[-1]} environments; {free / 1e9:.1f} GB of memory are free")
            numbers.pop()
        game = make_game(name, size=options.size)
        for n in numbers:
            if (name, n) not in scripts:
                scripts[name, n] = legal_script(game, n, max(8, SCRIPTED // n), spread=SPREAD[name])
        makers: Makers = {str(n): partial(make_vec, game, n, workers, copy=False) for n in numbers}
        with opened(makers) as made:
            turns = {key: play(env, scripts[name, env.num_envs]) for key, env in made.items()}
            rates = measure(turns, options.rounds, options.seconds, f"{name}, {workers} workers")
        found[runner_name(name, workers, False)] = {int(key): measured for key, measured in rates.items()}
    return found


def measure_memory(options: Options) -> dict[str, float]:
    """Bytes an environment adds to all processes together, from the difference between two numbers of them."""
    few, many = options.num_envs, options.num_envs * 5
    found = {}
    for name, workers in itertools.product(GAMES, WORKERS):
        taken = [afresh(proportional_memory, name, n, workers, options.size) for n in (few, many)]
        found[runner_name(name, workers, False)] = (taken[1] - taken[0]) / (many - few)
    return found


def measure_start(options: Options) -> dict[str, tuple[float, float]]:
    """Seconds of processor time a worker takes until all environments show a position, and of wall time."""
    return {
        runner_name(name, workers, False): afresh(start_seconds, name, options.started, workers, options.size)
        for name, workers in itertools.product(GAMES, WORKERS)
    }


def afresh(work: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a new process, so that nothing is made or cached yet."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def proportional_memory(name: str, num_envs: int, workers: int, size: int) -> int:
    """Bytes of this process and its children after some steps; what several share counts once, in parts (PSS)."""
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
    """Processor seconds a worker (or this process, with none) takes from nothing to the first frames; wall seconds."""
    make_game(name, size=128)  # finds the installed games, which is not to be counted
    # Nor is it that a virtual machine gets memory from its host when it is touched for the first time since boot.
    np.zeros((num_envs, size, size, 3), np.uint8).fill(1)
    whose = resource.RUSAGE_CHILDREN if workers else resource.RUSAGE_SELF
    before, start = processor_seconds(whose), time.perf_counter()
    with closing(make_vec(make_game(name, size=size), num_envs, workers, copy=False)) as env:
        env.reset(seed=0)
        wall = time.perf_counter() - start
    # The time of children is known when they have ended.
    return (processor_seconds(whose) - before) / max(1, workers), wall


def processor_seconds(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


# What is printed -----------------------------------------------------------------------------------------------------


def steps_table(rates: Mapping[str, Rates], options: Options) -> Table:
    limit, theirs = rates[LIMIT].median, rates[ASYNC].median
    title = f"environment steps/s, {options.num_envs} environments, {options.size} x {options.size}"
    table = Table("contestant", "median", "slowest", "fastest", "x limit", "x AsyncVectorEnv", title=title)
    for name, measured in rates.items():
        numbers = (f"{value:,.0f}" for value in (measured.median, measured.slowest, measured.fastest))
        table.add_row(name, *numbers, f"{measured.median / limit:.2f}", f"{measured.median / theirs:.1f}")
    return table


def environments_table(found: Mapping[str, Mapping[int, Rates]]) -> Table:
    numbers = sorted({n for rates in found.values() for n in rates})
    title = "environment steps/s by number of environments: median (slowest to fastest)"
    table = Table("contestant", *(f"{n:,}" for n in numbers), title=title)
    for name, rates in found.items():
        table.add_row(name, *(str(rates[n]) if n in rates else "left out" for n in numbers))
    return table


def memory_table(found: Mapping[str, float], options: Options) -> Table:
    title = f"memory of one more environment = frame ({options.frame / 1e6:.2f} MB) + the rest"
    table = Table("contestant", "MB in all", "KB beside the frame", title=title)
    for name, taken in found.items():
        table.add_row(name, f"{taken / 1e6:.2f}", f"{(taken - options.frame) / 1e3:.1f}")
    return table


def start_table(found: Mapping[str, tuple[float, float]], options: Options) -> Table:
    title = f"start of {options.started} environments"
    table = Table("contestant", "processor seconds a worker", "wall seconds", title=title)
    for name, (processor, wall) in found.items():
        table.add_row(name, f"{processor:.2f}", f"{wall:.2f}")
    return table


def step_goals(rates: Mapping[str, Rates]) -> Iterable[Goal]:
    median = {name: measured.median for name, measured in rates.items()}
    for copy in (False, True):
        best = max(median[runner_name("2048", workers, copy)] for workers in WORKERS)
        suffix = ", copy" if copy else ""
        ratio = best / median[ASYNC + suffix]
        yield Goal(f"2048{suffix} at 30 x AsyncVectorEnv{suffix} or better", f"{ratio:.1f} x", ratio >= 30)
    share = median[runner_name("2048", 0, False)] / median[LIMIT]
    yield Goal("2048 in one process at half of the copy limit or more", f"{share:.2f}", share >= 0.5)
    for game in GAMES[1:]:
        ours = [median[runner_name("2048", n, False)] / median[runner_name(game, n, False)] for n in WORKERS]
        words = f"{game} within a factor 2 of our 2048, with 0, 1 and 2 workers"
        yield Goal(words, ", ".join(f"{factor:.2f}" for factor in ours), max(ours) <= 2)


def environments_goals(found: Mapping[str, Mapping[int, Rates]]) -> Iterable[Goal]:
    for name, rates in found.items():
        medians = [measured.median for measured in rates.values()]
        share = min(medians) / max(medians)
        words = f"{name}: flat from {min(rates)} to {max(rates)} environments (slowest at least 0.8 of fastest)"
        yield Goal(words, f"{share:.2f}", share >= 0.8)


def start_goals(found: Mapping[str, tuple[float, float]], options: Options) -> Iterable[Goal]:
    for name, (processor, _) in found.items():
        words = f"{name}: start of {options.started} environments in less than 2 s of work a worker"
        yield Goal(words, f"{processor:.2f} s", processor < 2)


def goals_table(goals: Iterable[Goal]) -> Table:
    table = Table("goal", "measured", "reached", title="goals")
    for goal in goals:
        table.add_row(goal.words, goal.measured, "[green]yes" if goal.reached else "[red]no")
    return table


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
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
    """Measure the parts, print their tables and the goals, and write the numbers."""
    if options.json is not None:
        check_own_file(options.json)
    numbers: dict[str, Any] = {"machine": machine()}
    console.print(", ".join(f"{key} {value}" for key, value in numbers["machine"].items()), highlight=False)
    goals: list[Goal] = []
    if "steps" in options.parts:
        rates = measure_steps(options)
        console.print(steps_table(rates, options))
        goals += step_goals(rates)
        numbers["steps"] = {name: measured.rounds for name, measured in rates.items()}
    if "environments" in options.parts:
        by_number = measure_environments(options, console)
        console.print(environments_table(by_number))
        goals += environments_goals(by_number)
        numbers["environments"] = {name: {n: r.rounds for n, r in rates.items()} for name, rates in by_number.items()}
    if "memory" in options.parts:
        if Path("/proc/self/smaps_rollup").exists():
            memory = measure_memory(options)
            console.print(memory_table(memory, options))
            numbers["memory"] = memory
        else:
            console.print("left out: memory, which is read from Linux's /proc")
    if "start" in options.parts:
        start = measure_start(options)
        console.print(start_table(start, options))
        goals += start_goals(start, options)
        numbers["start"] = start
    if "encoding" in options.parts:
        from encoding import encoders_table, measure_encoding, numbers_of  # type: ignore[import-not-found]  # found beside this script

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
            parse_options(Options, None, "benchmarks/throughput.py"),
            Console(width=None if sys.stdout.isatty() else 120),
        )


if __name__ == "__main__":
    main()
