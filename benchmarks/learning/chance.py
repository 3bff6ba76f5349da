"""What answers are worth that are given without a look at the picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.core.seats import Seat
from training.core.states import all_actions
from vlmgym.sandbox.reward import score_action


def without_looking(seats: Sequence[Seat]) -> tuple[float, float]:
    """Mean reward of random answers, and of the best answer that is the same everywhere, chosen with these positions.

    Args:
        seats: At positions of one game.

    Raises:
        UsageError: The game's actions cannot be listed.
    """
    game, reward = seats[0].pick.game, seats[0].rules.reward
    actions = all_actions(game)
    earned = np.empty((len(seats), len(actions)))
    for line, seat in zip(earned, seats):
        state = game.from_json(seat.position.snapshot.state)
        # what an answer earns does not depend on the chance of what comes after it
        line[:] = [score_action(game, state, action, np.random.default_rng(0), reward).overall for action in actions]
    return float(earned.mean()), float(earned.mean(axis=0).max())
