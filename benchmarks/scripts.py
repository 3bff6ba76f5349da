"""Action scripts and timed trials for benchmarks, besides what `vlmgym bench` has."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from vlmgym.cli.bench import Script, Trial, legal_action
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.envs.vector import make_vec


def repeat(work: Callable[[], int]) -> Trial:
    """Return a trial that repeats `work` and measures units per second; `work` returns the number of units done."""

    def turn(seconds: float) -> float:
        work()  # warm up the caches
        done, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds or not done:
            done += work()
        return done / spent

    return turn


def copying(size: int, num_envs: int) -> Trial:
    """Return a trial that only copies one frame per environment step, an upper bound for the speed of environments."""
    rng = np.random.default_rng(0)
    sources = rng.integers(0, 256, (num_envs, size, size, 3), np.uint8)
    targets = np.zeros_like(sources)

    def step() -> int:
        for source, target in zip(sources, targets):
            np.copyto(target, source)
        return num_envs

    return repeat(step)


def uniform_script(game: Game[Any, Any], num_envs: int, steps: int) -> Script:
    """Return a script of uniformly random actions, which may be illegal."""
    rng = np.random.default_rng(0)
    return Script(0, [[game.answer.sample(rng) for _ in range(num_envs)] for _ in range(steps)])


def spread_states(game: Game[Any, Any], num_envs: int, spread: int) -> list[Snapshot]:
    """Return a state for each environment; environment i gets a state after i % spread random legal moves.

    A few steps of many environments then cover the same stages of episodes as many steps of a few environments. An
    environment whose episode ends on the way gets a state of its next episode.
    """
    rng = np.random.default_rng(0)
    with closing(make_vec(game, num_envs, 0, render=False)) as runner:

        def move(ids: list[int]) -> None:
            if ids:
                episodes = runner.call("episode")
                runner.send([legal_action(episodes[i], rng) for i in ids], ids)
                runner.recv()

        runner.reset(seed=0)
        for turn in range(spread):
            move([i for i in range(num_envs) if i % spread > turn])
        move([i for i, episode in enumerate(runner.call("episode")) if episode.ended])  # resets them
        return runner.get_states()
