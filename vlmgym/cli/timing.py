"""Compare the rates of several candidates fairly, alternating between them for several rounds in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from gymnasium.vector import VectorEnv
from rich.progress import track

from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.envs.vector import make_vec

K = TypeVar("K")

Trial = Callable[[float], float]
"""Function that runs for about the given number of seconds and returns a rate in units per second."""


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
    return legal[int(rng.integers(len(legal)))] if legal else episode.game.random_action(rng)


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
