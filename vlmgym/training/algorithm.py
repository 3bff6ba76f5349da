"""What a training algorithm consists of: its options, the targets of a step's samples, and the loss of a batch.

An algorithm is one file with a subclass of `Algorithm`, and a field of `TrainConfig`: the name of the field selects the
algorithm, and is the prefix of its options. At the end are the formulas that algorithms share: advantages, in plain
NumPy, and terms of losses, whose tensors have shape (responses, tokens).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, PositiveInt, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs
from tyro.conf import Fixed

from vlmgym.errors import UsageError, VlmgymError, describe_validation_error
from vlmgym.sandbox.core.prompt import ObservationType

if TYPE_CHECKING:
    import torch

    from vlmgym.training.engine.actor import LogProbs
    from vlmgym.training.engine.encoding import TrainSample

Fraction = Annotated[float, Field(ge=0, le=1)]

Floats = NDArray[np.float64]

STD_FLOOR = 1e-4
"""Added to a group's standard deviation before dividing by it, as in TRL and EasyR1."""


class TrainingError(VlmgymError):
    """Training cannot continue; the message suggests a remedy."""


class DivergedError(TrainingError):
    """The loss or gradient is not finite or far too large. Resuming with the same options would diverge again."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of all options; invalid values raise `UsageError`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, data: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        try:
            return handler(data)
        except ValidationError as error:
            if not isinstance(data, ArgsKwargs):  # a section of a file, which the caller names
                raise
            raise UsageError(describe_validation_error(error)) from None


def cosine_rate(step: int, steps: int) -> float:
    """Decay a learning rate from 1 to 2% along a cosine; `step` counts from 0 to `steps`."""
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))


@dataclasses.dataclass(slots=True)
class Trajectory:
    """An episode to learn from.

    Attributes:
        group: Index of the initial state, which all episodes of a group share.
        rewards: Reward of each turn.
        samples: Prompt and response of each turn.
        bootstrap_value: The critic's value of the final state if the episode was truncated, otherwise 0.
    """

    group: int
    rewards: list[float]
    samples: list[TrainSample]
    bootstrap_value: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Targets of a batch of responses. All tensors have shape (responses, tokens of the longest response).

    Attributes:
        weights: Weight of each token in the mean over the minibatch; see `UpdateConfig.loss_over`. 0 for padding.
        token_weights: The same for a mean over all tokens.
        advantages: Advantages; 0 in supervised fine-tuning.
        old_logprobs: Log-probabilities before the step.
        ref_logprobs: Log-probabilities under the reference model; None without one.
        old_values: The critic's values before the step; None without a critic.
        returns: Targets of the critic; None without a critic.
        value_weights: Weight of each token in the mean over the critic's targets, 0 for tokens without a target.
    """

    weights: torch.Tensor
    token_weights: torch.Tensor
    advantages: torch.Tensor
    old_logprobs: torch.Tensor
    ref_logprobs: torch.Tensor | None = None
    old_values: torch.Tensor | None = None
    returns: torch.Tensor | None = None
    value_weights: torch.Tensor | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Teacher:
    """A frozen model whose distribution of each token is compared with the trained model's.

    Attributes:
        checkpoint: Folder or Hub name; None means the model before reinforcement learning.
        observation: What its prompts show of a state.
    """

    checkpoint: str | None
    observation: ObservationType


@dataclass(frozen=True, kw_only=True)
class Algorithm(Options):
    """Base of algorithms for reinforcement learning, whose fields are options.

    Attributes:
        critic: Whether the model has a value head.
        imitates: Whether to learn from the expert's responses in the states of episodes, instead of the model's own.
    """

    critic: ClassVar[bool] = False
    imitates: ClassVar[bool] = False

    epochs: Fixed[PositiveInt] = 1
    """Passes over the responses of a step."""
    minibatches: Fixed[PositiveInt] = 1
    """Updates per pass. With a single update per step, nothing is clipped."""
    gamma: Fixed[Fraction] = 1.0
    """Discount factor per turn."""
    entropy_coef: Fixed[Annotated[float, Field(ge=0)]] = 0.0
    """Coefficient of the entropy bonus."""

    @property
    def episodes_per_state(self) -> int:
        """Number of episodes that start at the same state and form a group."""
        return 1

    @property
    def uses_rewards(self) -> bool:
        """Whether the loss depends on rewards."""
        return not self.imitates

    @property
    def teacher_model(self) -> Teacher | None:
        """The teacher that gives the loss `LogProbs.divergence`, or None."""
        return None

    def learning_rates(self, lr: float) -> tuple[float, float]:
        """Return the peak learning rates of the model and of the critic; `lr` is --update.lr."""
        return lr, 0.0

    def targets(self, episodes: Sequence[Trajectory]) -> dict[str, float]:
        """Fill in `advantages`, and `returns` for a critic, of all samples; return metrics."""
        raise NotImplementedError

    def loss(self, out: LogProbs, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Compute the loss of a batch, and metrics. Both are sums over the batch, with weights that make a mean."""
        raise NotImplementedError


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
    deltas = rewards + gamma * np.append(values[1:], bootstrap_value) - values
    advantages = discounted_returns(deltas, np.multiply(gamma, lam))
    return advantages, advantages + values


def group_indices(groups: Sequence[Hashable]) -> list[list[int]]:
    """List the indices of the members of each group, given the group of each member."""
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    return list(members.values())


def normalise_groups(rewards: ArrayLike, groups: Sequence[Hashable], scale: bool = True) -> Floats:
    """Normalise rewards within each group, as in GRPO.

    Shao et al. 2024, https://arxiv.org/abs/2402.03300, section 4.1.2. With `scale`, centred rewards are divided by the
    group's sample standard deviation + 1e-4, as in TRL and EasyR1. Without `scale`, this is the estimator of Dr. GRPO
    (Liu et al. 2025, https://arxiv.org/abs/2503.20783). The advantage in a group of one is 0.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    advantages = np.zeros_like(rewards)
    for indices in group_indices(groups):
        if len(indices) > 1:
            centred = rewards[indices] - rewards[indices].mean()
            advantages[indices] = centred / (rewards[indices].std(ddof=1) + STD_FLOOR) if scale else centred
    return advantages


def explained_variance(values: Floats, returns: Floats) -> float:
    """Compute the fraction of the returns' variance that the values explain, ignoring NaN returns.

    The result is 1 for a perfect critic, and 0 for one that is no better than predicting the mean return, or if all
    returns are equal.
    """
    targets = ~np.isnan(returns)
    variance = np.var(returns[targets])
    return float(1 - np.var(returns[targets] - values[targets]) / variance) if variance > 0 else 0.0


def whiten(advantages: ArrayLike) -> Floats:
    """Shift and scale advantages to mean 0 and standard deviation 1; a single advantage becomes 0."""
    values = np.asarray(advantages, dtype=np.float64)
    white: Floats = (values - values.mean()) / (values.std() + 1e-8)
    return white


def policy_loss(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> torch.Tensor:
    """Compute the clipped policy loss of each token (Schulman et al. 2017, https://arxiv.org/abs/1707.06347, eq. 7)."""
    ratio = (logprobs - old).exp()
    return -(ratio * advantages).minimum(ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)


def clip_fraction(
    logprobs: torch.Tensor, old: torch.Tensor, clip_low: float, clip_high: float, weights: torch.Tensor
) -> torch.Tensor:
    """Compute the weighted fraction of tokens whose probability ratio is outside the clip range."""
    ratio = (logprobs.detach() - old).exp()
    return (((ratio < 1 - clip_low) | (ratio > 1 + clip_high)) * weights).sum()


def value_loss(values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, clip: float) -> torch.Tensor:
    """Compute half the squared error of the value of each token.

    If `clip` is not 0, take the larger error of the value and of the value clipped to `old` +- `clip`.
    """
    loss = (values - returns) ** 2
    if clip:
        loss = loss.maximum((old + (values - old).clamp(-clip, clip) - returns) ** 2)
    return 0.5 * loss


def kl_estimate(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Estimate the KL divergence from a reference at each sampled token: unbiased and never negative.

    r - 1 - log r with r = reference / policy (Schulman 2020, http://joschu.net/blog/kl-approx.html, estimator k3).
    """
    log_ratio = reference - logprobs
    return log_ratio.exp() - 1 - log_ratio
