"""`vlmgym bench`: measure throughput for about half a minute and recommend a number of workers and environments."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np
import tyro
from gymnasium.vector import VectorEnv
from rich.console import Console
from rich.progress import track
from rich.table import Table

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game, pick
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

K = TypeVar("K")

Trial = Callable[[float], float]
"""Function that runs for about the given number of seconds and returns a rate in units per second."""
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
        cores = num_workers_for(max(self.envs), None)
        workers = self.workers or [0, cores, *(1 << power for power in range(cores.bit_length()))]
        return sorted({(min(count, envs), envs) for count in workers for envs in self.envs})


def bench(config: BenchConfig, console: Console | None = None) -> Layout:
    """Measure layouts, print a table and a recommendation, and return the recommended layout."""
    console = console or Console()
    rates = measure_layouts(config)
    choice = recommend(rates)
    best = max(measured.median for measured in rates.values())
    table = Table("workers", "environments", "steps/s: median (slowest to fastest)", "of the best", title=config.game)
    for (workers, envs), measured in rates.items():
        row = (str(workers), str(envs), str(measured), f"{measured.median / best:.0%}")
        table.add_row(*row, style="bold" if (workers, envs) == choice else None)
    console.print(table)
    console.print(
        f"Recommended: make_vec({config.game!r}, num_envs={choice[1]}, num_workers={choice[0]}, copy=False), with the "
        f"fewest processes and environments within {1 - TIE_RATIO:.0%} of the fastest. Leave one core free for other "
        "work, such as a model's preprocessing.",
        highlight=False,
    )
    return choice


def measure_layouts(config: BenchConfig) -> dict[Layout, Rates]:
    """Measure the rates of all layouts, in alternating rounds."""
    game = config.make_game(config.game)
    layouts = config.layouts()
    scripts = {envs: legal_script(game, envs, max(MIN_STEPS, ACTIONS // envs)) for envs in set(config.envs)}
    runners = {(workers, envs): partial(make_vec, game, envs, workers, copy=False) for workers, envs in layouts}
    with opened(runners) as environments:
        trials = {layout: play(env, scripts[env.num_envs]) for layout, env in environments.items()}
        return measure(trials, ROUNDS, config.seconds / len(layouts) / ROUNDS, config.game)


def recommend(rates: Mapping[Layout, Rates]) -> Layout:
    """Choose, among the layouts that count as equally fast, the one with the fewest workers, then environments."""
    enough = TIE_RATIO * max(measured.median for measured in rates.values())
    return min(layout for layout, measured in rates.items() if measured.median >= enough)


# Timing: candidates alternate for several rounds in one run -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one candidate, one per round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median rate."""
        return statistics.median(self.rounds)

    @property
    def slowest(self) -> float:
        """Slowest rate."""
        return min(self.rounds)

    @property
    def fastest(self) -> float:
        """Fastest rate."""
        return max(self.rounds)

    def __str__(self) -> str:
        """Format the median, slowest and fastest rates."""
        return f"{_short(self.median)} ({_short(self.slowest)} to {_short(self.fastest)})"


def measure(candidates: Mapping[K, Trial], rounds: int, seconds: float, what: str) -> dict[K, Rates]:
    """Measure candidates alternately, so that other load affects them equally."""
    rates: dict[K, list[float]] = {name: [] for name in candidates}
    for name in track([*candidates] * rounds, what, transient=True):
        rates[name].append(candidates[name](seconds))
    return {name: Rates(tuple(measured)) for name, measured in rates.items()}


@dataclass(frozen=True, slots=True)
class Script:
    """Actions of all environments at each step.

    Before the first step, the environments are reset with `seed`, and then set to `states` unless that is None.
    """

    seed: int
    steps: list[list[Any]]
    states: list[Snapshot] | None = None


def legal_script(
    game: Game[Any, Any], num_envs: int, steps: int, seed: int = 0, states: list[Snapshot] | None = None
) -> Script:
    """Make a script of random legal actions for environments that start from a seeded reset, or from `states`."""
    rng = np.random.default_rng(seed)
    with closing(make_vec(game, num_envs, 0, render=False)) as runner:
        runner.reset(seed=seed)
        if states is not None:
            runner.set_states(states)
        script = []
        for _ in range(steps):
            script.append([legal_action(episode, rng) for episode in runner.call("episode")])
            runner.step(script[-1])
    return Script(seed, script, states)


def legal_action(episode: Any, rng: np.random.Generator) -> Any:
    """Choose a random legal action; for an ended episode, any action, because the next step resets the episode."""
    legal = episode.game.legal_actions(episode.state)
    return pick(rng, legal) if legal else episode.game.answer.sample(rng)


def play(env: Any, script: Script) -> Trial:
    """Return a trial that plays a script on a `VectorEnv`, restarting at its end.

    The rate is in environment steps per second. Resets at the start of the script are not timed; autoresets are. The
    observations of a step are held until the next step.
    """
    at = len(script.steps)
    held: tuple[Any, ...] = ()

    def step() -> float:
        nonlocal at, held
        if at == len(script.steps):
            at, held = 0, env.reset(seed=script.seed)
            if script.states is not None:
                held = env.set_states(script.states)
        start = time.perf_counter()
        held = env.step(script.steps[at])
        at += 1
        return time.perf_counter() - start

    def turn(seconds: float) -> float:
        step()
        done, spent = 0, 0.0
        while spent < seconds:
            spent += step()
            done += env.num_envs
        return done / spent

    return turn


@contextmanager
def opened(environments: Mapping[K, Callable[[], VectorEnv[Any, Any, Any]]]) -> Iterator[dict[K, Any]]:
    """Create vector environments by name, and close them all at the end of the block."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(make())) for name, make in environments.items()}


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
