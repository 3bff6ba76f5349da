"""DAgger: supervised fine-tuning on the expert's response in each state that the model reaches.

Ross et al. 2011, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online Learning",
https://arxiv.org/abs/1011.0686, algorithm 3.1 with beta = 0: the model plays alone from the first step. Instead of
training on all states so far, each step trains on its own, like an online algorithm of section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic.dataclasses import dataclass

from vlmgym.training.algorithm import Algorithm, Batch, Trajectory

if TYPE_CHECKING:
    import torch

    from vlmgym.training.engine.actor import LogProbs


@dataclass(frozen=True, kw_only=True)
class Dagger(Algorithm):
    """Expert responses in the states that the model reaches (Ross et al. 2011, https://arxiv.org/abs/1011.0686).
    The expert is that of supervised fine-tuning, `--sft.expert`; its answers are always right."""

    imitates: ClassVar[bool] = True

    def targets(self, episodes: Sequence[Trajectory]) -> dict[str, float]:
        """Need no targets besides the expert's tokens."""
        return {}

    def loss(self, out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the mean negative log-likelihood of the expert's tokens."""
        loss = -((out.logprobs + self.entropy_coef * out.entropy) * batch.weights).sum()
        return loss, {"expert_loss": -(out.logprobs * batch.token_weights).sum()}
