"""Expert responses for supervised fine-tuning: ground-truth perception, the game's own reasoning, and an answer."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from vlmgym.errors import UsageError
from vlmgym.rollout.states import action_rewards, all_actions
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import RewardConfig

Expert = Literal["oracle", "greedy", "rule"]


def expert_response(
    game: Game[Any, Any],
    state: Any,
    expert: Expert,
    accuracy: float,
    reward: RewardConfig,
    rng: np.random.Generator,
    rejected: Any = None,
) -> str:
    """Write a response whose answer is the expert's with probability `accuracy`, else a random action.

    Random answers leave it to reinforcement learning to find the right ones. The answer is never `rejected`, the action
    that the prompt reports as illegal, so that the model learns to heed feedback. Raises `UsageError` if the game has
    no such expert.
    """
    right = rng.random() < accuracy
    action = expert_action(game, state, expert, reward, rng) if right else game.random_action(rng)
    while action == rejected:
        action = game.random_action(rng)
    return game.respond(state, action)


def expert_action(
    game: Game[Any, Any], state: Any, expert: Expert, reward: RewardConfig, rng: np.random.Generator
) -> Any:
    """Return the action of the game's oracle or simple rule, or one with the highest immediate reward (`greedy`).

    Raises:
        UsageError: The game has no such expert.
    """
    if expert == "greedy":
        actions, rewards = all_actions(game), list(action_rewards(game, state, reward))
        highest = max(rewards)
        best = [action for action, earned in zip(actions, rewards) if earned == highest]
        return best[int(rng.integers(len(best)))]
    action = game.rule_action(state) if expert == "rule" else game.best_action(state)
    if action is None:
        raise UsageError(f"{game.name} has no {expert} to learn from")
    return action
