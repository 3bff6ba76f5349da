"""Advantages: how much better a response was than expected. Plain NumPy, for every trainer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

STD_FLOOR = 1e-4
"""Added to a group's standard deviation before dividing, as in TRL's and EasyR1's GRPO."""


def discounted_returns(rewards: ArrayLike, gamma: float) -> Floats:
    """Rewards to come, from each turn on: G_t = r_t + gamma G_(t+1); shape (turns,)."""
    returns = np.array(rewards, dtype=np.float64)
    for t in reversed(range(len(returns) - 1)):
        returns[t] += gamma * returns[t + 1]
    return returns


def gae(rewards: ArrayLike, values: ArrayLike, gamma: float, lam: float, after: float = 0.0) -> tuple[Floats, Floats]:
    """Generalised advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, equation 16).

    Args:
        rewards: Of each step of one sequence, shape (steps,).
        values: What the critic expected at each step, shape (steps,).
        gamma: Discount of a step.
        lam: 0 trusts the critic after one step, 1 only what was earned.
        after: What the critic expects after the last step: 0 where the episode ended.

    Returns:
        Advantages A_t = delta_t + gamma lam A_(t+1) with delta_t = r_t + gamma V_(t+1) - V_t, and the returns A_t + V_t
        that the critic is trained on; both of shape (steps,).
    """
    earned, expected = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    deltas = earned + gamma * np.append(expected[1:], after) - expected if len(earned) else earned
    advantages = discounted_returns(deltas, gamma * lam)
    return advantages, advantages + expected


def group_normalised(rewards: ArrayLike, groups: Sequence[Hashable], scale: bool = True) -> Floats:
    """GRPO's advantages: rewards less their group's mean, over its standard deviation.

    Shao et al. 2024, https://arxiv.org/abs/2402.03300, section 4.1.2. Without `scale` it is the estimator of Dr. GRPO,
    which does not divide (Liu et al. 2025, https://arxiv.org/abs/2503.20783).

    Args:
        rewards: Of each response, shape (responses,).
        groups: Which responses belong together, a key for each.
        scale: Whether to divide by the standard deviation (of a sample, as in TRL and EasyR1) + 1e-4.

    Returns:
        Advantages, shape (responses,); 0 for a group of one.
    """
    earned = np.asarray(rewards, dtype=np.float64)
    advantages = np.zeros_like(earned)
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    for places in members.values():
        if len(places) > 1:
            centred = earned[places] - earned[places].mean()
            advantages[places] = centred / (earned[places].std(ddof=1) + STD_FLOOR) if scale else centred
    return advantages


def whitened(advantages: ArrayLike) -> Floats:
    """Advantages with mean 0 and standard deviation 1, as PPO normalises them; of one alone only the mean is taken."""
    values = np.asarray(advantages, dtype=np.float64)
    white: Floats = (values - values.mean()) / (values.std() + 1e-8 if len(values) > 1 else 1.0)
    return white
