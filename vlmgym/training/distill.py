"""On-policy distillation: a teacher scores the tokens of the student's own responses.

Agarwal et al. 2024, "On-Policy Distillation of Language Models", https://arxiv.org/abs/2306.13649, equation 4 with
responses of the student only (lambda 1) and the reverse KL divergence; Gu et al. 2024, "MiniLLM",
https://arxiv.org/abs/2306.08543, minimise the same divergence. Alone or added to the loss of GRPO, as in section 3.1 of
the former.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.prompt import ObservationType
from vlmgym.training.algorithm import Batch, Teacher
from vlmgym.training.grpo import Grpo

if TYPE_CHECKING:
    import torch

    from vlmgym.training.engine.actor import LogProbs


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
