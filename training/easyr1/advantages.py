"""Advantages over whole episodes; padding rows are ignored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from verl.protocol import DataProto

from training.core.advantages import discounted_returns, gae, normalise_groups, whiten

Stock = Callable[..., DataProto]
Beyond = Callable[[], Mapping[tuple[int, int], float]]
"""Bootstrap values of truncated episodes, by row and copy."""


def advantages_of(
    data: DataProto, adv_estimator: str, gamma: float, lam: float, *, step_weight: float, stock: Stock, beyond: Beyond
) -> DataProto:
    """Add `advantages` and `returns` to a batch, as `verl.trainer.ray_trainer.compute_advantage` does.

    Single-turn groups use EasyR1's estimators. GAE for PPO runs over all tokens of an episode, turn by turn, and
    bootstraps from the critic where an episode was truncated. Grouped episodes get the two advantages of GiGPO, see
    `episode_advantages`.

    Args:
        data: Batch of `turn_rows` with `token_level_rewards`, and `values` for PPO.
        adv_estimator: Name of the estimator in EasyR1.
        gamma: Discount factor, per token for PPO, per turn for GiGPO.
        lam: GAE lambda for PPO.
        step_weight: Step-level weight of GiGPO.
        stock: The original function of EasyR1.
        beyond: Returns bootstrap values; called for PPO only.
    """
    live = np.flatnonzero(data.non_tensor_batch["live"].astype(bool))
    part = data[live]
    if adv_estimator == "gae":
        advantages, returns = _over_tokens(part, gamma, lam, beyond())
    elif any(turn > 1 for turn in part.non_tensor_batch["turn"]):
        each = torch.from_numpy(episode_advantages(part, gamma, step_weight)).float()
        advantages = returns = each.unsqueeze(-1) * part.batch["response_mask"]
    else:
        part = stock(part, adv_estimator=adv_estimator, gamma=gamma, lam=lam)
        advantages, returns = part.batch["advantages"], part.batch["returns"]
    for name, values in (("advantages", advantages), ("returns", returns)):
        whole = torch.zeros_like(data.batch["token_level_rewards"])
        whole[torch.from_numpy(live)] = values.to(whole.dtype)
        data.batch[name] = whole
    return data


def episode_advantages(data: DataProto, gamma: float, step_weight: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Compute the GiGPO advantage of each turn: episode-level plus weighted step-level.

    Feng et al. 2025, "Group-in-Group Policy Optimization" (https://arxiv.org/abs/2505.10978), sections 4.1 to 4.3:
    episode
    returns are normalised within a group, and discounted returns-to-go among all turns of the group in the same state.

    Args:
        data: Non-padding rows of `turn_rows`.
        gamma: Discount factor per turn.
        step_weight: Weight of the step-level advantage.

    Returns:
        Advantages, shape (rows,).
    """
    facts = data.non_tensor_batch
    rewards = data.batch["token_level_rewards"].sum(-1).double().numpy()
    episodes = _episodes(data)
    totals = {key: float(rewards[places].sum()) for key, places in episodes.items()}
    of_episode = dict(zip(totals, normalise_groups(list(totals.values()), [row for row, _ in totals])))
    advantages = np.array([of_episode[row, copy] for row, copy in zip(facts["row"], facts["copy"])])
    to_come = np.zeros(len(data))
    for places in episodes.values():
        to_come[places] = discounted_returns(rewards[places], gamma)
    same_position = list(zip(facts["row"], facts["anchor"]))
    return advantages + step_weight * normalise_groups(to_come, same_position)


def _over_tokens(
    data: DataProto, gamma: float, lam: float, beyond: Mapping[tuple[int, int], float]
) -> tuple[torch.Tensor, torch.Tensor]:
    mask = data.batch["response_mask"].bool()
    rewards, values = data.batch["token_level_rewards"], data.batch["values"]
    advantages, returns = torch.zeros_like(rewards), torch.zeros_like(rewards)  # values are bfloat16 on GPUs
    for episode, places in _episodes(data).items():
        rows = torch.tensor(places)
        said = mask[rows]
        earned, expected = rewards[rows][said].double().numpy(), values[rows][said].double().numpy()
        better, target = gae(earned, expected, gamma, lam, beyond.get(episode, 0.0))
        for whole, found in ((advantages, better), (returns, target)):
            part = whole[rows]
            part[said] = torch.from_numpy(found).to(whole.dtype)
            whole[rows] = part
    advantages[mask] = torch.from_numpy(whiten(advantages[mask].double().numpy())).to(advantages.dtype)
    return advantages, returns


def _episodes(data: DataProto) -> dict[tuple[int, int], list[int]]:
    """Return the row indices of each episode, in order of turns."""
    facts = data.non_tensor_batch
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place in np.argsort(facts["turn"].astype(int), kind="stable").tolist():
        places[facts["row"][place], facts["copy"][place]].append(place)
    return dict(places)
