"""Responses to learn from before reinforcement learning: true perception, the game's own reasoning, and an answer."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from training.core.states import all_actions, rewards_of_actions
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import RewardConfig

Teacher = Literal["oracle", "greedy"]


def teach(
    game: Game[Any, Any], state: Any, teacher: Teacher, right: float, reward: RewardConfig, rng: np.random.Generator
) -> str:
    """A response to a position.

    Args:
        game: The game.
        state: The position.
        teacher: Whose answer is right: the game's oracle, or an action of the highest reward of this one turn.
        right: Share of right answers; the others are drawn from the whole action space. What is left for
            reinforcement learning to find is which answers are right.
        reward: What `greedy` compares.
        rng: Chance.

    Raises:
        UsageError: The game has no oracle, or its actions cannot be listed for `greedy`.
    """
    action = best_action(game, state, teacher, reward, rng) if rng.random() < right else game.random_action(rng)
    return game.respond(state, action)


def best_action(
    game: Game[Any, Any], state: Any, teacher: Teacher, reward: RewardConfig, rng: np.random.Generator
) -> Any:
    """What the teacher would play; among equally good actions of `greedy` one at random."""
    if teacher == "greedy":
        actions = all_actions(game)
        earned = list(rewards_of_actions(game, state, reward))
        best = [action for action, reward_ in zip(actions, earned) if reward_ == max(earned)]
        return best[int(rng.integers(len(best)))]
    action = game.best_action(state)
    if action is None:
        raise UsageError(f"{game.name} has no oracle to learn from")
    return action
