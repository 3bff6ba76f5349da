"""Measure what action masks cost in `make_vec`: CPU time per step of one environment.

    .venv/bin/python -m benchmarks.action_masks

Candidates take turns, and play uniformly random actions; times are the fastest of `ROUNDS`.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.markdown import table
from benchmarks.vector_workers import seconds_per_step

GAMES, SIZES = ("2048", "swap", "sokoban", "shisensho"), (128, 256)
CANDIDATES: dict[str, dict[str, Any]] = {"none": {}, "action_masks": {"action_masks": True}}
NUM_ENVS, ROUNDS = 32, 5


def row(game: str, size: int) -> list[str]:
    """Measure all candidates with a game."""
    rounds = [
        [seconds_per_step(game, size, NUM_ENVS, 0, time.process_time, **settings) for settings in CANDIDATES.values()]
        for _ in range(ROUNDS)
    ]
    plain, *others = map(min, zip(*rounds))
    return [game, f"{size} px", f"{plain * 1e6:.0f} us", *(f"{other / plain:.2f}" for other in others)]


if __name__ == "__main__":
    print(table(["game", "size", *CANDIDATES], [row(game, size) for game in GAMES for size in SIZES]))
