"""What a training algorithm consists of: its options, the targets of a step's samples, and the loss of a batch.

An algorithm is one file with a subclass of `Algorithm`, and a field of `TrainConfig`: the name of the field selects the
algorithm, and is the prefix of its options.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

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
    """

    critic: ClassVar[bool] = False

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
