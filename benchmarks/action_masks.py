"""Measure what action masks and full infos cost in `make_vec`: CPU time per step of one environment.

    .venv/bin/python -m benchmarks.action_masks

Candidates take turns, and play uniformly random actions; times are the fastest of `ROUNDS`.
"""

from __future__ import annotations

import time
from typing import Any

import vlmgym
from benchmarks.markdown import table

GAMES, SIZES = ("2048", "swap", "sokoban", "shisensho"), (128, 256)
CANDIDATES: dict[str, dict[str, Any]] = {
    "neither": {},
    "action_masks": {"action_masks": True},
    "full_info": {"full_info": True},
}
NUM_ENVS, STEPS, ROUNDS = 32, 60, 5


def seconds_per_step(game: str, size: int, settings: dict[str, Any]) -> float:
    """Return the CPU time of one step of one environment in seconds."""
    envs = vlmgym.make_vec(game, NUM_ENVS, num_workers=0, size=size, **settings)
    try:
        envs.reset(seed=0)
        envs.action_space.seed(0)
        actions = [envs.action_space.sample() for _ in range(STEPS)]
        envs.step(actions[0])
        start = time.process_time()
        for action in actions:
            envs.step(action)
        return (time.process_time() - start) / STEPS / NUM_ENVS
    finally:
        envs.close()


def row(game: str, size: int) -> list[str]:
    """Measure all candidates with a game."""
    rounds = [[seconds_per_step(game, size, settings) for settings in CANDIDATES.values()] for _ in range(ROUNDS)]
    plain, *others = map(min, zip(*rounds))
    return [game, f"{size} px", f"{plain * 1e6:.0f} us", *(f"{other / plain:.2f}" for other in others)]


if __name__ == "__main__":
    print(table(["game", "size", *CANDIDATES], [row(game, size) for game in GAMES for size in SIZES]))
