"""Advantage estimation in plain NumPy, shared by all trainers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

STD_FLOOR = 1e-4
"""Added to the standard deviation of a group before dividing, as in TRL and EasyR1."""


def discounted_returns(rewards: ArrayLike, gamma: float) -> Floats:
    """Compute G_t = r_t + gamma G_(t+1); shape (turns,)."""
    returns = np.array(rewards, dtype=np.float64)
    for t in reversed(range(len(returns) - 1)):
        returns[t] += gamma * returns[t + 1]
    return returns


def gae(
    rewards: ArrayLike, values: ArrayLike, gamma: float, lam: float, bootstrap_value: float = 0.0
) -> tuple[Floats, Floats]:
    """Generalised advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, equation 16).

    Args:
        rewards: Reward of each step of a sequence, shape (steps,).
        values: Value estimate of each step, shape (steps,).
        gamma: Discount factor.
        lam: GAE lambda: 0 for one-step TD errors, 1 for Monte Carlo returns.
        bootstrap_value: Value of the state after the last step, 0 if the episode terminated.

    Returns:
        Advantages A_t = delta_t + gamma lam A_(t+1) with delta_t = r_t + gamma V_(t+1) - V_t, and returns A_t + V_t
        as targets of the critic; both of shape (steps,).
    """
    rewards, values = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    deltas = rewards + gamma * np.append(values[1:], bootstrap_value) - values if len(rewards) else rewards
    advantages = discounted_returns(deltas, gamma * lam)
    return advantages, advantages + values


def normalise_groups(rewards: ArrayLike, groups: Sequence[Hashable], scale: bool = True) -> Floats:
    """Normalise rewards within their group, as in GRPO.

    Shao et al. 2024, https://arxiv.org/abs/2402.03300, section 4.1.2. Without `scale`, the estimator of Dr. GRPO
    (Liu et al. 2025, https://arxiv.org/abs/2503.20783).

    Args:
        rewards: Reward of each response, shape (responses,).
        groups: Group key of each response.
        scale: Divide by the sample standard deviation + 1e-4, as TRL and EasyR1 do.

    Returns:
        Advantages, shape (responses,); 0 for a group of one.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    advantages = np.zeros_like(rewards)
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    for indices in members.values():
        if len(indices) > 1:
            centred = rewards[indices] - rewards[indices].mean()
            advantages[indices] = centred / (rewards[indices].std(ddof=1) + STD_FLOOR) if scale else centred
    return advantages


def whiten(advantages: ArrayLike) -> Floats:
    """Shift and scale advantages to mean 0 and standard deviation 1; a single one is only shifted."""
    values = np.asarray(advantages, dtype=np.float64)
    white: Floats = (values - values.mean()) / (values.std() + 1e-8 if len(values) > 1 else 1.0)
    return white
