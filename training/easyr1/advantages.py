"""Advantages of the rows of a batch, by whole episodes; rows that only fill are left out."""

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
"""What the critic expects of the positions at which episodes were cut off, by row and copy."""


def advantages_of(
    data: DataProto, adv_estimator: str, gamma: float, lam: float, *, step_weight: float, stock: Stock, beyond: Beyond
) -> DataProto:
    """Add `advantages` and `returns` to a batch, as `verl.trainer.ray_trainer.compute_advantage` does.

    Single answers with an estimator of groups are left to EasyR1. PPO's generalised advantage estimation runs over all
    tokens of an episode, turn after turn; after one that was cut off comes what the critic expects of the position that
    was left. Episodes in groups get GiGPO's two advantages: see `episode_advantages`.

    Args:
        data: Of `turn_rows`, with `token_level_rewards`, and for PPO `values`.
        adv_estimator: EasyR1's name of the estimator.
        gamma: Discount; of a token with PPO, of a turn with GiGPO.
        lam: Of PPO.
        step_weight: Of GiGPO.
        stock: EasyR1's own function.
        beyond: Asked with PPO.
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
    """The advantage of each turn: that of its episode, and that of the turn, weighed.

    Feng et al. 2025, "Group-in-Group Policy Optimization" (https://arxiv.org/abs/2505.10978), sections 4.1 to 4.3: the
    returns of whole episodes are normalised among those that began at one position, and the discounted returns from
    each turn on among all turns of these episodes that answer the same position.

    Args:
        data: Live rows of `turn_rows`.
        gamma: Discount of a turn.
        step_weight: Of the second part.

    Returns:
        Shape (rows,).
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
    """Places of the rows of each episode, its turns in order."""
    facts = data.non_tensor_batch
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place in np.argsort(facts["turn"].astype(int), kind="stable").tolist():
        places[facts["row"][place], facts["copy"][place]].append(place)
    return dict(places)
