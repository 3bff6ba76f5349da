"""Compute advantages over whole episodes, ignoring padding rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
import torch
from verl.protocol import DataProto

from vlmgym.training.advantages import Floats, discounted_returns, gae, normalise_groups, whiten
from vlmgym.training.easyr1.batch import real_rows
from vlmgym.training.easyr1.rollout_worker import EpisodeId

BootstrapValues = Callable[[], Mapping[EpisodeId, float]]
"""Function that returns the bootstrap value of each truncated episode."""


def compute_advantages(
    data: DataProto,
    adv_estimator: str,
    gamma: float,
    lam: float,
    *,
    step_weight: float,
    stock: Callable[..., DataProto],
    bootstrap_values: BootstrapValues,
) -> DataProto:
    """Add `advantages` and `returns` to a batch and return it, like `verl.trainer.ray_trainer.compute_advantage`.

    PPO (`gae`) uses GAE over all tokens of an episode, and bootstraps from the critic if the episode was truncated.
    Other estimators use GiGPO (`episode_advantages`) if any episode of the batch has several turns, and EasyR1's
    function otherwise.

    Args:
        data: Batch from `turn_batch`, with `token_level_rewards` and, for PPO, `values`.
        adv_estimator: EasyR1's setting `algorithm.adv_estimator`.
        gamma: Discount factor, per token for PPO and per turn for GiGPO.
        lam: Lambda of GAE.
        step_weight: Weight of the step-level advantage of GiGPO.
        stock: EasyR1's own `compute_advantage`.
        bootstrap_values: Called only for PPO.
    """
    rows = real_rows(data)
    part = data[rows]
    if adv_estimator == "gae":
        advantages, returns = _token_gae(part, gamma, lam, bootstrap_values())
    elif any(turn > 1 for turn in part.non_tensor_batch["turn"]):
        each = torch.from_numpy(episode_advantages(part, gamma, step_weight)).float()
        advantages = returns = each.unsqueeze(-1) * part.batch["response_mask"]
    else:
        part = stock(part, adv_estimator=adv_estimator, gamma=gamma, lam=lam)
        advantages, returns = part.batch["advantages"], part.batch["returns"]
    for name, values in (("advantages", advantages), ("returns", returns)):
        whole = torch.zeros_like(data.batch["token_level_rewards"])
        whole[torch.from_numpy(rows)] = values.to(whole.dtype)
        data.batch[name] = whole
    return data


def episode_advantages(data: DataProto, gamma: float, step_weight: float) -> Floats:
    """Compute the GiGPO advantage of each row: the episode-level one plus `step_weight` times the step-level one.

    Feng et al. 2025, "Group-in-Group Policy Optimization" (https://arxiv.org/abs/2505.10978), sections 4.1 to 4.3. The
    episode-level advantage is the return of the episode, normalised within its group. The step-level advantage is the
    discounted return from a turn on, normalised over all turns of the group that start from the same state. `gamma`
    discounts per turn. The batch must not contain padding.
    """
    columns = data.non_tensor_batch
    rewards = data.batch["token_level_rewards"].sum(-1).double().numpy()
    episodes = _episode_rows(data)
    totals = {episode: float(rewards[rows].sum()) for episode, rows in episodes.items()}
    normalised = dict(zip(totals, normalise_groups(list(totals.values()), [prompt_id for prompt_id, _ in totals])))
    advantages = np.array([normalised[episode] for episode in zip(columns["prompt_id"], columns["sample_idx"])])
    returns = np.zeros(len(data))
    for rows in episodes.values():
        returns[rows] = discounted_returns(rewards[rows], gamma)
    same_state = list(zip(columns["prompt_id"], columns["state_key"]))
    return advantages + step_weight * normalise_groups(returns, same_state)


def _token_gae(
    data: DataProto, gamma: float, lam: float, bootstrap_values: Mapping[EpisodeId, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    mask = data.batch["response_mask"].bool()
    rewards, values = data.batch["token_level_rewards"], data.batch["values"]
    advantages, returns = torch.zeros_like(rewards), torch.zeros_like(rewards)  # values are bfloat16 on GPUs
    for episode, indices in _episode_rows(data).items():
        rows = torch.tensor(indices)
        tokens = mask[rows]
        args = (rewards[rows][tokens].double().numpy(), values[rows][tokens].double().numpy())
        found = gae(*args, gamma, lam, bootstrap_values.get(episode, 0.0))
        for whole, numbers in zip((advantages, returns), found):
            part = whole[rows]
            part[tokens] = torch.from_numpy(numbers).to(whole.dtype)
            whole[rows] = part
    advantages[mask] = torch.from_numpy(whiten(advantages[mask].double().numpy())).to(advantages.dtype)
    return advantages, returns


def _episode_rows(data: DataProto) -> dict[EpisodeId, list[int]]:
    """Return the row indices of each episode, in order of turns."""
    columns = data.non_tensor_batch
    rows: dict[EpisodeId, list[int]] = defaultdict(list)
    for row in np.argsort(columns["turn"].astype(int), kind="stable").tolist():
        rows[columns["prompt_id"][row], columns["sample_idx"][row]].append(row)
    return dict(rows)
