"""GRPO compares the responses to the same state with each other; in distillation, a teacher scores their tokens.

GRPO: Shao et al. 2024, "DeepSeekMath", https://arxiv.org/abs/2402.03300, section 4.1. The options add the upper clip
range of DAPO (Yu et al. 2025, https://arxiv.org/abs/2503.14476) and the estimator of Dr. GRPO (Liu et al. 2025,
https://arxiv.org/abs/2503.20783).

Distillation: Agarwal et al. 2024, "On-Policy Distillation of Language Models", https://arxiv.org/abs/2306.13649,
equation 4 with responses of the student only (lambda 1) and the reverse KL divergence; Gu et al. 2024, "MiniLLM",
https://arxiv.org/abs/2306.08543, minimise the same divergence. Alone or added to the loss of GRPO, as in section 3.1 of
the former.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass
from tyro.conf import Fixed

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.prompt import ObservationType
from vlmgym.training.algorithm import (
    Algorithm,
    Batch,
    Floats,
    Teacher,
    Trajectory,
    clip_fraction,
    discounted_returns,
    normalise_groups,
    policy_loss,
)

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


def grpo_advantages(
    rewards: Sequence[Sequence[float]], groups: Sequence[Hashable], gamma: float = 1.0, scale: bool = True
) -> list[Floats]:
    """Normalise each turn's discounted return within its group, over the group's returns at the same turn.

    Takes the rewards of each episode's turns, and the group of each episode. An episode that has already ended counts
    as a return of 0, so every turn is compared with all episodes of its group. Returns the advantages of each
    episode's turns.
    """
    returns = np.zeros((len(rewards), max(map(len, rewards))))
    for number, turns in enumerate(rewards):
        returns[number, : len(turns)] = discounted_returns(turns, gamma)
    advantages = np.stack([normalise_groups(turn, groups, scale) for turn in returns.T], axis=1)
    return [row[: len(turns)] for row, turns in zip(advantages, rewards)]


@dataclass(frozen=True, kw_only=True)
class Distill(Grpo):
    """On-policy distillation (Agarwal et al. 2024, https://arxiv.org/abs/2306.13649), with the options of GRPO."""

    group_size: PositiveInt = 8
    """Episodes per initial state."""
    teacher: str | None = None
    """Folder or Hub name of the teacher, with the same vocabulary. None means the model before distillation."""
    observation: ObservationType = "text"
    """What the teacher reads: the image that the student sees, the description of the state as text, or both."""
    reward_coef: NonNegativeFloat = 0.0
    """Coefficient of GRPO's loss. 0 learns from the teacher alone."""

    def __post_init__(self) -> None:
        if self.reward_coef and self.group_size == 1:
            raise UsageError("distill.reward_coef compares responses to the same state: set distill.group_size above 1")

    @property
    def uses_rewards(self) -> bool:
        """Whether GRPO's loss is added."""
        return self.reward_coef > 0

    @property
    def teacher_model(self) -> Teacher:
        """The teacher."""
        return Teacher(self.teacher, self.observation)

    def loss(self, out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the mean divergence from the teacher, and add GRPO's loss.

        Gradients of the divergence do not go through the sampling of responses, as in the paper.
        """
        assert out.divergence is not None
        loss = (out.divergence * batch.weights).sum()
        metrics = {"teacher_kl": (out.divergence * batch.token_weights).sum()}
        if self.reward_coef:
            reward_loss, reward_metrics = super().loss(out, batch)
            loss, metrics = loss + self.reward_coef * reward_loss, metrics | reward_metrics
        return loss, metrics
