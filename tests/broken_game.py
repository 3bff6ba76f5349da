"""A game with a bug, for tests of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from vlmgym.sandbox.core.game import Step
from vlmgym.sandbox.games.game2048 import Game2048


class Broken(Game2048):
    """2048 whose code fails at every move up, and in every eighth initial state."""

    name = "broken"
    draws = True

    def start_at(self, seed: int, rng: np.random.Generator) -> Any:
        state = super().start_at(seed, rng)
        if rng.integers(8) == 0:
            raise RuntimeError("broken start")
        return state

    def step(self, state: Any, action: Any, rng: np.random.Generator) -> Step[Any]:
        if action == 0:
            raise RuntimeError("broken step")
        return super().step(state, action, rng)

    def draw(self, state: Any) -> Any:
        if not self.draws:
            raise RuntimeError("broken draw")
        return super().draw(state)
