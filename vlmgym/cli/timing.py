"""Measuring rates so that contestants can be compared: one after another, in rounds, in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from rich.progress import Progress, TimeElapsedColumn

from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.envs.vector.env import make_vec

Turn = Callable[[float], float]
"""Does its work for about so many seconds and returns its rate, in units of work a second."""


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one contestant, one a round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of the rounds were faster."""
        return statistics.median(self.rounds)

    @property
    def slowest(self) -> float:
        """Rate of the slowest round."""
        return min(self.rounds)

    @property
    def fastest(self) -> float:
        """Rate of the fastest round."""
        return max(self.rounds)

    def __str__(self) -> str:
        """Median, and the slowest and fastest round."""
        return f"{_short(self.median)} ({_short(self.slowest)} to {_short(self.fastest)})"


def measure(contestants: Mapping[str, Turn], rounds: int, seconds: float, what: str) -> dict[str, Rates]:
    """Give every contestant a turn, and again, so that what else the machine does hits all alike.

    Args:
        contestants: By name.
        rounds: Turns of each.
        seconds: Length of a turn.
        what: Shown beside the progress bar.
    """
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), transient=True) as progress:
        task = progress.add_task(what, total=rounds * len(contestants))
        for _ in range(rounds):
            for name, turn in contestants.items():
                rates[name].append(turn(seconds))
                progress.advance(task)
    return {name: Rates(tuple(measured)) for name, measured in rates.items()}


def repeat(work: Callable[[], int]) -> Turn:
    """A turn that does a piece of work again and again; the work returns how many units it was."""

    def turn(seconds: float) -> float:
        work()  # what others left in the caches is not this contestant's fault
        done, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds or not done:
            done += work()
        return done / spent

    return turn


@dataclass(frozen=True, slots=True)
class Script:
    """Actions for every environment, step by step, from a reset with a seed on.

    Attributes:
        seed: As `reset` takes it.
        steps: An action for each environment, a step.
        states: Positions to go on from right after the reset; None: the first ones.
    """

    seed: int
    steps: list[list[Any]]
    states: list[Snapshot] | None = None


def legal_script(game: Game[Any, Any], num_envs: int, steps: int, seed: int = 0, spread: int = 1) -> Script:
    """Random legal actions of the episodes that environments with these seeds play, whichever runner steps them.

    Args:
        game: The game.
        num_envs: How many environments.
        steps: How many steps.
        seed: Of the environments and of the actions.
        spread: Environment i begins after i % spread moves, so that a few steps of many environments are like many
            steps of a few; 1: all begin at the start. Only the runner of vlmgym can play a script with a spread.
    """
    rng = np.random.default_rng(seed)
    with closing(make_vec(game, num_envs, 0, render=False)) as runner:

        def act(ids: Iterable[int]) -> list[Any]:
            episodes = runner.call("episode")
            return [_legal_action(episodes[i], rng) for i in ids]

        def move(ids: list[int]) -> None:
            if ids:
                runner.send(act(ids), ids)
                runner.recv()

        runner.reset(seed=seed)
        states = None
        if spread > 1:
            for turn in range(spread):
                move([i for i in range(num_envs) if i % spread > turn])
            # No episode begins at its end: one more step resets those that are over.
            move([i for i, episode in enumerate(runner.call("episode")) if episode.ended])
            states = runner.get_states()
            runner.reset(seed=seed)
            runner.set_states(states)
        script = []
        for _ in range(steps):
            script.append(act(range(num_envs)))
            runner.step(script[-1])
    return Script(seed, script, states)


def uniform_script(game: Game[Any, Any], num_envs: int, steps: int, seed: int = 0) -> Script:
    """Actions drawn uniformly from the action space, legal or not."""
    rng = np.random.default_rng(seed)
    return Script(seed, [[game.random_action(rng) for _ in range(num_envs)] for _ in range(steps)])


def play(env: Any, script: Script) -> Turn:
    """A turn of a `VectorEnv`: it plays the script, again from the start when it is over.

    The rate is in steps of single environments a second. Resets at the start of the script are not timed; those of
    episodes that end on the way are. The last step's observations are held until the next ones are there.
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
def opened(environments: Mapping[str, Callable[[], VectorEnv[Any, Any, Any]]]) -> Iterator[dict[str, Any]]:
    """Make vector environments by name, and close them all in the end."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(closing(make())) for name, make in environments.items()}


def _legal_action(episode: Any, rng: np.random.Generator) -> Any:
    legal = episode.game.legal_actions(episode.state)
    # An ended episode is reset by the next step, which does not look at the action.
    return legal[int(rng.integers(len(legal)))] if legal else episode.game.random_action(rng)


def _short(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
