"""PPO: compare the return of a response with what a critic expected of the state.

Schulman et al. 2017, https://arxiv.org/abs/1707.06347, with generalised advantage estimation (Schulman et al. 2016,
https://arxiv.org/abs/1506.02438).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass
from tyro.conf import Fixed

from vlmgym.training.algorithm import (
    Algorithm,
    Batch,
    Floats,
    Fraction,
    Trajectory,
    clip_fraction,
    explained_variance,
    gae,
    policy_loss,
    value_loss,
    whiten,
)

if TYPE_CHECKING:
    import torch

    from vlmgym.training.engine.actor import LogProbs


@dataclass(frozen=True, kw_only=True)
class Ppo(Algorithm):
    """Proximal policy optimisation with a value head (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""

    critic: ClassVar[bool] = True

    lr: NonNegativeFloat | None = None
    """Peak learning rate of the model. None means --update.lr."""
    epochs: Fixed[PositiveInt] = 4
    """Passes over the responses of a step."""
    minibatches: Fixed[PositiveInt] = 4
    """Updates per pass."""
    gamma: Fixed[Fraction] = 0.99
    """Discount factor per turn."""
    entropy_coef: Fixed[NonNegativeFloat] = 0.01
    """Coefficient of the entropy bonus."""
    lam: Fixed[Fraction] = 0.95
    """Lambda of GAE."""
    gae_over: Fixed[Literal["turns", "tokens"]] = "turns"
    """Unit of a GAE step.
    turns: the critic values the state before each response, and all tokens of the response share its advantage.
    tokens: the critic values each token; there is no discount within a response."""
    clip: Fixed[NonNegativeFloat] = 0.2
    """Clip range of the probability ratio."""
    value_coef: Fixed[NonNegativeFloat] = 0.5
    """Coefficient of the value loss."""
    value_clip: Fixed[NonNegativeFloat] = 0.2
    """Clip range of value updates, in units of the reward. 0 turns clipping off."""
    value_lr: Fixed[NonNegativeFloat] = 1e-2
    """Learning rate of the value head."""
    whiten: Fixed[bool] = True
    """Normalise advantages to mean 0 and standard deviation 1 over the tokens of a step."""

    def learning_rates(self, lr: float) -> tuple[float, float]:
        """Return the peak learning rates of the model and of the value head."""
        return lr if self.lr is None else self.lr, self.value_lr

    def targets(self, episodes: Sequence[Trajectory]) -> dict[str, float]:
        """Estimate advantages and returns by GAE; return the explained variance of the critic."""
        monte_carlo: list[Floats] = []
        for episode in episodes:
            for sample, advantages, returns in zip(episode.samples, *self.estimate(episode, self.lam)):
                sample.advantages, sample.returns = advantages, returns
            # With lambda below 1, returns contain the critic's own values, so it is compared with lambda-1 returns.
            monte_carlo += self.estimate(episode, lam=1.0)[1]
        samples = [sample for episode in episodes for sample in episode.samples]
        if self.whiten:
            white = whiten(np.concatenate([sample.advantages for sample in samples if sample.advantages is not None]))
            ends = np.cumsum([len(sample.response) for sample in samples])[:-1]
            for sample, advantages in zip(samples, np.split(white, ends)):
                sample.advantages = advantages
        old_values = np.concatenate([sample.old_values for sample in samples if sample.old_values is not None])
        return {"explained_variance": explained_variance(old_values, np.concatenate(monte_carlo))}

    def estimate(self, episode: Trajectory, lam: float) -> tuple[list[Floats], list[Floats]]:
        """Estimate the advantages and returns of each response's tokens; tokens without a return have NaN."""
        values = [sample.old_values for sample in episode.samples if sample.old_values is not None]
        lengths = [len(tokens) for tokens in values]
        if self.gae_over == "turns":
            state_values = [tokens[0] for tokens in values]
            advantages, returns = gae(episode.rewards, state_values, self.gamma, lam, episode.bootstrap_value)
            targets = [np.append(target, np.full(length - 1, np.nan)) for target, length in zip(returns, lengths)]
            return [np.full(length, advantage) for advantage, length in zip(advantages, lengths)], targets
        last = np.cumsum(lengths) - 1
        rewards, gammas = np.zeros(sum(lengths)), np.ones(sum(lengths))
        rewards[last], gammas[last] = episode.rewards, self.gamma
        advantages, returns = gae(rewards, np.concatenate(values), gammas, lam, episode.bootstrap_value)
        return np.split(advantages, last[:-1] + 1), np.split(returns, last[:-1] + 1)

    def loss(self, out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the clipped policy loss, the entropy bonus and the clipped value loss (equation 9)."""
        assert out.values is not None
        assert batch.old_values is not None
        assert batch.returns is not None
        losses = policy_loss(out.logprobs, batch.old_logprobs, batch.advantages, self.clip, self.clip)
        policy = ((losses - self.entropy_coef * out.entropy) * batch.weights).sum()
        errors = value_loss(out.values, batch.old_values, batch.returns, self.value_clip)
        value = (errors * batch.value_weights).sum()
        clipped = clip_fraction(out.logprobs, batch.old_logprobs, self.clip, self.clip, batch.token_weights)
        metrics = {"policy_loss": policy, "value_loss": value, "clip_fraction": clipped}
        return policy + self.value_coef * value, metrics
