"""One step of learning from rollouts: clipped policy loss, value loss, entropy bonus, KL to a reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from training.core.advantages import Floats
from training.core.checks import check_numbers
from training.local.actor import Actor, Measured, Sample
from training.local.errors import DivergedError
from training.local.micro_batches import micro_batches
from vlmgym.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """How the model is changed."""

    lr: float = 1e-6
    """Highest learning rate; it rises over the first `warmup` steps."""
    warmup: int = 10
    """Steps."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Of AdamW."""
    weight_decay: float = 0.0
    """Of AdamW."""
    grad_norm: float = 1.0
    """Gradients are made no longer than this."""
    clip_low: float = 0.2
    """A token's probability may fall to 1 - this of what it was before an advantage stops counting. PPO has its own,
    and GRPO only clips where a step has several updates: --grpo.epochs, --grpo.minibatches."""
    clip_high: float = 0.28
    """Likewise rise to 1 + this: more than clip_low keeps rare tokens alive (DAPO, https://arxiv.org/abs/2503.14476)."""
    entropy: float = 0.0
    """Weight of the bonus for the entropy of tokens; PPO has its own."""
    kl: float = 0.0
    """Weight of the divergence from the model before reinforcement learning."""
    kl_target: float | None = None
    """Change that weight so that the divergence stays near this many nats a token (Ziegler et al. 2019,
    https://arxiv.org/abs/1909.08593); None: it is fixed."""
    loss_over: Literal["tokens", "responses", "constant"] = "tokens"
    """What the loss is a mean over. tokens: of all responses; responses: of each, then over these; constant: their sum
    over responses x the longest response that is allowed (Dr. GRPO)."""
    loss_limit: float = 1e3
    """Training stops where the loss of the policy is larger, as it does where it is no number. Its advantages are of
    size 1, so that it is near 0 while all is well; the loss of the critic, which is in units of the reward, is not
    part of it."""
    micro_batch: int = 64
    """Responses that go through the model at once when it is changed, at most: fewer need less memory."""

    def __post_init__(self) -> None:
        if self.micro_batch < 1 or self.warmup < 0:
            raise UsageError("micro_batch is at least 1, and warmup at least 0")
        check_numbers(
            self,
            at_least_0=("lr", "weight_decay", "clip_low", "clip_high", "entropy", "kl"),
            above_0=("grad_norm", "loss_limit"),
        )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"betas are at least 0 and less than 1, not {self.betas}")
        if self.kl_target is not None and not (self.kl_target > 0 and self.kl > 0):
            raise UsageError("kl_target is more than 0, and needs a weight to begin with: --update.kl, more than 0")


@dataclass(slots=True)
class Lesson:
    """What is learned from one response; arrays have one number for each of its tokens.

    Attributes:
        sample: Prompt and response.
        advantages: How much better than expected.
        logprobs: Log-probabilities before the step; None: as they are now, in a step of one update.
        values: What the critic expected before the step; None without one.
        returns: What the critic is to expect, NaN where it is not asked; None without one.
        reference: Log-probabilities by the reference; None without one.
    """

    sample: Sample
    advantages: Floats
    logprobs: Floats | None = None
    values: Floats | None = None
    returns: Floats | None = None
    reference: Floats | None = None


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Of the parts of the loss, beside the policy's.

    Attributes:
        value: Of the value loss.
        value_clip: How far a value may move; 0: any way.
        entropy: Of the entropy bonus.
        kl: Of the divergence from the reference.
    """

    value: float = 0.0
    value_clip: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0


def token_weights(
    mask: torch.Tensor, config: UpdateConfig, responses: int, tokens: int, max_tokens: int
) -> torch.Tensor:
    """How much each token counts in the mean that a loss is; shape of the mask.

    Args:
        mask: Which tokens are of a response, shape (some of the responses, longest response).
        config: What the loss is a mean over.
        responses: Responses of the whole update.
        tokens: Their tokens.
        max_tokens: Longest response that is allowed.
    """
    if config.loss_over == "tokens":
        return mask / tokens
    if config.loss_over == "responses":
        return mask / mask.sum(dim=1, keepdim=True) / responses
    return mask / (responses * max_tokens)


def policy_loss(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> torch.Tensor:
    """The clipped loss of each token (Schulman et al. 2017, equation 7)."""
    ratio = (logprobs - old).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)


def value_loss(values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, clip: float) -> torch.Tensor:
    """Half the squared error of each value, at least that of a value which has moved no further than `clip`."""
    loss = (values - returns) ** 2
    if clip:
        loss = torch.max(loss, (old + (values - old).clamp(-clip, clip) - returns) ** 2)
    return 0.5 * loss


def kl_estimate(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The divergence from a reference, estimated at each sampled token: unbiased and never negative.

    r - 1 - log r with r = reference / policy (Schulman 2020, http://joschu.net/blog/kl-approx.html, estimator k3).
    """
    log_ratio = reference - logprobs
    return log_ratio.exp() - 1 - log_ratio


def learn(
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    lessons: Sequence[Lesson],
    config: UpdateConfig,
    weights: Weights,
    *,
    temperature: float,
    max_tokens: int,
    epochs: int = 1,
    minibatches: int = 1,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Change the model by what was learned.

    Args:
        actor: The model.
        optimizer: Of its parameters.
        lessons: All of a step.
        config: How.
        weights: Of the parts of the loss.
        temperature: At which responses were sampled.
        max_tokens: Longest response that is allowed.
        epochs: Passes over the lessons.
        minibatches: Updates in a pass, at most as many as lessons.
        rng: Decides which lessons make a minibatch.

    Returns:
        Means over updates: loss, policy_loss, grad_norm, entropy, clipped (share of tokens), kl (from the reference),
        moved (from the model before the step), value_loss.

    Raises:
        DivergedError: The loss or the gradient is not finite, or the loss larger than what it may be.
    """
    parameters = [parameter for parameter in actor.parameters() if parameter.requires_grad]
    facts: list[dict[str, float]] = []
    for _ in range(epochs):
        order = rng.permutation(len(lessons))
        for part in np.array_split(order, minibatches):
            update = [lessons[place] for place in part]
            tokens = sum(len(lesson.sample.response) for lesson in update)
            asked = sum(0 if lesson.returns is None else int((~np.isnan(lesson.returns)).sum()) for lesson in update)
            sums: dict[str, float] = {}
            for places in micro_batches([lesson.sample for lesson in update], config.micro_batch):
                some = [update[place] for place in places]
                measured = actor.measure(
                    [lesson.sample for lesson in some], temperature, learn_entropy=weights.entropy > 0
                )
                counted = token_weights(measured.mask, config, len(update), tokens, max_tokens)
                loss, found = _loss(measured, some, counted, tokens, asked, config, weights)
                if not math.isfinite(loss.item()):
                    raise DivergedError(
                        f"the loss is {loss.item()}: lower --update.lr (of PPO --ppo.lr), or look at the last rollouts"
                    )
                if abs(found["policy_loss"]) > config.loss_limit:
                    raise DivergedError(
                        f"the loss of the policy is {found['policy_loss']:.3g}, beyond {config.loss_limit:g}: lower "
                        "--update.lr (of PPO --ppo.lr), or raise --update.loss-limit"
                    )
                loss.backward()
                for name, value in {"loss": loss.item(), **found}.items():
                    sums[name] = sums.get(name, 0.0) + value
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, config.grad_norm))
            if not math.isfinite(norm):
                rounding = "" if actor.model.dtype == torch.float32 else ", or use --dtype float32"
                raise DivergedError(f"the gradient is not finite: lower --update.lr (of PPO --ppo.lr){rounding}")
            optimizer.step()
            optimizer.zero_grad()
            facts.append({**sums, "grad_norm": norm})
    return {name: float(np.mean([fact[name] for fact in facts])) for name in facts[0]}


def _loss(
    measured: Measured,
    lessons: Sequence[Lesson],
    counted: torch.Tensor,
    tokens: int,
    asked: int,
    config: UpdateConfig,
    weights: Weights,
) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss of some lessons, as their share of that of the whole update, and means over all its tokens likewise."""
    device = measured.logprobs.device
    logprobs = measured.logprobs
    old = logprobs.detach() if lessons[0].logprobs is None else padded([lesson.logprobs for lesson in lessons], device)
    advantages = padded([lesson.advantages for lesson in lessons], device)
    losses = policy_loss(logprobs, old, advantages, config.clip_low, config.clip_high)
    with torch.no_grad():
        ratio = (logprobs - old).exp()
        outside = (ratio < 1 - config.clip_low) | (ratio > 1 + config.clip_high)
        facts = {
            "entropy": float((measured.entropy.detach() * measured.mask).sum() / tokens),
            "clipped": float((outside * measured.mask).sum() / tokens),
            "moved": float((kl_estimate(old, logprobs) * measured.mask).sum() / tokens),
        }
    if weights.entropy:
        losses = losses - weights.entropy * measured.entropy
    if lessons[0].reference is not None:
        divergence = kl_estimate(logprobs, padded([lesson.reference for lesson in lessons], device))
        losses = losses + weights.kl * divergence
        facts["kl"] = float((divergence.detach() * measured.mask).sum() / tokens)
    loss = (losses * counted).sum()
    facts["policy_loss"] = loss.item()
    if measured.values is not None:
        returns = padded([lesson.returns for lesson in lessons], device)
        errors = value_loss(
            measured.values,
            padded([lesson.values for lesson in lessons], device),
            returns.nan_to_num(),
            weights.value_clip,
        )
        # A mean over what the critic is asked, which in GAE over turns is one token of each response.
        error = errors.where(~returns.isnan() & measured.mask, 0.0).sum() / asked
        loss = loss + weights.value * error
        facts["value_loss"] = error.item()
    return loss, facts


def padded(arrays: Sequence[Floats | None], device: torch.device) -> torch.Tensor:
    """Arrays of different lengths as one float32 tensor, padded with zeros on the right."""
    rows = [torch.as_tensor(array, dtype=torch.float32) for array in arrays]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
