"""Measure from how many environments on worker processes pay in `make_vec`: time per step with and without them.

    .venv/bin/python -m benchmarks.vector_workers

Candidates take turns, and play uniformly random actions; ratios are those of medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vlmgym
from benchmarks.markdown import table
from vlmgym.workers.pool import available_cores

GAMES, SIZES, NUM_ENVS = ("2048", "shisensho"), (96, 640), (4, 16, 64, 256)
Clock = Callable[[], float]
STEPS, ROUNDS = 3000, 3
"""Steps of all environments together, at least 20 of each, and repetitions."""


def seconds_per_step(
    game: str, size: int, num_envs: int, num_workers: int, clock: Clock = time.perf_counter, **settings: Any
) -> float:
    """Return the time of one step of one environment in seconds; `settings` are further arguments of `make_vec`."""
    envs = vlmgym.make_vec(game, num_envs, num_workers=num_workers, size=size, **settings)
    try:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        steps = max(20, STEPS // num_envs)
        actions = [envs.action_space.sample() for _ in range(steps)]
        envs.step(actions[0])
        start = clock()
        for action in actions:
            envs.step(action)
        return (clock() - start) / steps / num_envs
    finally:
        envs.close()


def rows() -> Iterator[list[str]]:
    """Measure all combinations."""
    for game in GAMES:
        for size in SIZES:
            for num_envs in NUM_ENVS:
                workers = (0, available_cores())
                times = [[seconds_per_step(game, size, num_envs, count) for count in workers] for _ in range(ROUNDS)]
                one_process, divided = np.median(times, axis=0)
                cells = [f"{one_process * 1e6:.0f} us", f"{divided * 1e6:.0f} us", f"{divided / one_process:.2f}"]
                yield [game, f"{size} px", str(num_envs), *cells]


if __name__ == "__main__":
    columns = ["game", "size", "environments", "in this process", f"{available_cores()} workers", "ratio"]
    print(table(columns, list(rows())))
