"""Advantage estimation in plain NumPy, shared by all trainers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

STD_FLOOR = 1e-4
"""Added to a group's standard deviation before dividing by it, as in TRL and EasyR1."""


def discounted_returns(rewards: ArrayLike, gamma: ArrayLike) -> Floats:
    """Compute G_t = r_t + gamma_t G_(t+1); `rewards` have shape (steps,), `gamma` is a number or one per step."""
    returns = np.array(rewards, dtype=np.float64)
    gammas = np.broadcast_to(gamma, returns.shape)
    for t in reversed(range(len(returns) - 1)):
        returns[t] += gammas[t] * returns[t + 1]
    return returns


def gae(
    rewards: ArrayLike, values: ArrayLike, gamma: ArrayLike, lam: float, bootstrap_value: float = 0.0
) -> tuple[Floats, Floats]:
    """Estimate advantages by GAE (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, equation 16).

    Takes the reward and value of each step, shape (steps,), and the value of the state after the last step, which is 0
    if the episode terminated. `gamma` is a number or one per step. With `lam` 0, advantages are one-step TD errors;
    with 1, they are Monte Carlo returns minus values.

    Returns:
        Advantages A_t = delta_t + gamma lam A_(t+1) with delta_t = r_t + gamma V_(t+1) - V_t, and returns A_t + V_t.
    """
    rewards, values = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    deltas = rewards + gamma * np.append(values[1:], bootstrap_value) - values if len(rewards) else rewards
    advantages = discounted_returns(deltas, np.multiply(gamma, lam))
    return advantages, advantages + values


def normalise_groups(rewards: ArrayLike, groups: Sequence[Hashable], scale: bool = True) -> Floats:
    """Normalise rewards within each group, as in GRPO.

    Shao et al. 2024, https://arxiv.org/abs/2402.03300, section 4.1.2. With `scale`, centred rewards are divided by the
    group's sample standard deviation + 1e-4, as in TRL and EasyR1. Without `scale`, this is the estimator of Dr. GRPO
    (Liu et al. 2025, https://arxiv.org/abs/2503.20783). The advantage in a group of one is 0.
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


def explained_variance(values: Floats, returns: Floats) -> float:
    """Compute the fraction of the returns' variance that the values explain, ignoring NaN returns.

    The result is 1 for a perfect critic, and 0 for one that is no better than predicting the mean return, or if all
    returns are equal.
    """
    known = ~np.isnan(returns)
    variance = np.var(returns[known])
    return float(1 - np.var(returns[known] - values[known]) / variance) if variance > 0 else 0.0


def whiten(advantages: ArrayLike) -> Floats:
    """Shift and scale advantages to mean 0 and standard deviation 1; a single advantage becomes 0."""
    values = np.asarray(advantages, dtype=np.float64)
    white: Floats = (values - values.mean()) / (values.std() + 1e-8 if len(values) > 1 else 1.0)
    return white
