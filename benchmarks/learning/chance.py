"""What answers are worth that are given without a look at the image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.core.seats import Seat
from training.core.states import rewards_of_actions


def without_looking(seats: Sequence[Seat]) -> tuple[float, float]:
    """Mean reward of random answers, and of the best answer that is the same everywhere, chosen with these positions.

    Args:
        seats: At positions of one game.

    Raises:
        UsageError: The game's actions cannot be listed.
    """
    game, reward = seats[0].pick.game, seats[0].rules.reward
    states = [game.from_json(seat.position.snapshot.state) for seat in seats]
    earned = np.array([list(rewards_of_actions(game, state, reward)) for state in states])
    return float(earned.mean()), float(earned.mean(axis=0).max())
