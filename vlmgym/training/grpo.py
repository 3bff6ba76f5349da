"""GRPO: compare the responses to the same state with each other.

Shao et al. 2024, "DeepSeekMath", https://arxiv.org/abs/2402.03300, section 4.1. The options add the upper clip range of
DAPO (Yu et al. 2025, https://arxiv.org/abs/2503.14476) and the estimator of Dr. GRPO (Liu et al. 2025,
https://arxiv.org/abs/2503.20783).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat
from pydantic.dataclasses import dataclass
from tyro.conf import Fixed

from vlmgym.training.advantages import grpo_advantages
from vlmgym.training.algorithm import Algorithm, Batch, Trajectory
from vlmgym.training.loss import clip_fraction, policy_loss

if TYPE_CHECKING:
    import torch

    from vlmgym.training.engine.actor import LogProbs


@dataclass(frozen=True, kw_only=True)
class Grpo(Algorithm):
    """Group relative policy optimisation (Shao et al. 2024, https://arxiv.org/abs/2402.03300)."""

    group_size: Annotated[int, Field(ge=2)] = 8
    """Episodes per initial state."""
    clip_low: Fixed[NonNegativeFloat] = 0.2
    """Lower clip range of the probability ratio, which only clips with several updates per step."""
    clip_high: Fixed[NonNegativeFloat] = 0.28
    """Upper clip range of the probability ratio, which only clips with several updates per step.
    If it is above clip_low, rare tokens keep their probability (DAPO's clip-higher)."""
    scale_rewards: Fixed[bool] = True
    """Divide advantages by the standard deviation of the group's returns.
    For Dr. GRPO, turn this off and set update.loss_over to constant."""

    @property
    def episodes_per_state(self) -> int:
        """Size of a group."""
        return self.group_size

    def targets(self, episodes: Sequence[Trajectory]) -> dict[str, float]:
        """Normalise the discounted return of each turn within its group; all tokens of a response share it."""
        rewards, groups = [episode.rewards for episode in episodes], [episode.group for episode in episodes]
        advantages = grpo_advantages(rewards, groups, self.gamma, self.scale_rewards)
        for episode, turns in zip(episodes, advantages):
            for sample, advantage in zip(episode.samples, turns):
                sample.advantages = np.full(len(sample.response), advantage)
        return {}

    def loss(self, out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the clipped policy loss (equation 3; the KL penalty is added for all algorithms)."""
        clip = (self.clip_low, self.clip_high)
        losses = policy_loss(out.logprobs, batch.old_logprobs, batch.advantages, *clip)
        loss = ((losses - self.entropy_coef * out.entropy) * batch.weights).sum()
        clipped = clip_fraction(out.logprobs, batch.old_logprobs, *clip, batch.token_weights)
        return loss, {"policy_loss": loss, "clip_fraction": clipped}
