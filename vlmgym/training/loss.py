"""Losses of GRPO and PPO, and the updates of a training step: one per minibatch, computed in micro-batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from vlmgym.training.advantages import Floats
from vlmgym.training.config import UpdateConfig
from vlmgym.training.engine.actor import Actor, LogProbs, deduplicate
from vlmgym.training.engine.encoding import TrainSample
from vlmgym.training.engine.processes import ALONE, DivergedError, Processes

MIN_FILL = 0.9
"""Minimum fraction of each row of a micro-batch that is not padding. A lower minimum would waste time on padding, a
higher one would need more forward passes."""
MIN_FILL_SHARED = 0.75
"""The same for samples that share prompts; lower, because each forward pass computes its shared prompts again."""


def policy_loss(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> torch.Tensor:
    """Compute the clipped policy loss of each token (Schulman et al. 2017, https://arxiv.org/abs/1707.06347, eq. 7)."""
    ratio = (logprobs - old).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)


def value_loss(values: torch.Tensor, old: torch.Tensor, returns: torch.Tensor, clip: float) -> torch.Tensor:
    """Compute half the squared error of the value of each token.

    If `clip` is not 0, take the larger error of the value and of the value clipped to `old` +- `clip`.
    """
    loss = (values - returns) ** 2
    if clip:
        loss = torch.max(loss, (old + (values - old).clamp(-clip, clip) - returns) ** 2)
    return 0.5 * loss


def kl_estimate(logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Estimate the KL divergence from a reference at each sampled token: unbiased and never negative.

    r - 1 - log r with r = reference / policy (Schulman 2020, http://joschu.net/blog/kl-approx.html, estimator k3).
    """
    log_ratio = reference - logprobs
    return log_ratio.exp() - 1 - log_ratio


def token_weights(
    mask: torch.Tensor, config: UpdateConfig, responses: int, tokens: int, max_tokens: int
) -> torch.Tensor:
    """Return the weight of each token of a micro-batch in the loss of its minibatch, with the shape of `mask`.

    `responses` and `tokens` are the numbers of responses and of tokens in the minibatch.
    """
    if config.loss_over == "tokens":
        return mask / tokens
    if config.loss_over == "responses":
        return mask / mask.sum(dim=1, keepdim=True) / responses
    return mask / (responses * max_tokens)


def micro_batches(samples: Sequence[TrainSample], max_size: int, *, share: bool = True) -> list[list[int]]:
    """Group samples of similar length into forward passes, with equal prompts adjacent; return their indices.

    Samples are sorted by length, longest first. If samples `share` prompts, these and the responses are padded
    separately, so samples are sorted by the length of the prompt, then of the response.
    """
    unique, prompts = deduplicate([sample.prompt for sample in samples])
    shared = share and len(unique) < len(samples)
    parts = [(len(sample.prompt.ids), len(sample.response)) for sample in samples]
    lengths: list[tuple[int, ...]] = [*parts] if shared else [(sum(sizes),) for sizes in parts]
    min_fill = MIN_FILL_SHARED if shared else MIN_FILL
    batches: list[list[int]] = []
    for index in sorted(range(len(samples)), key=lambda i: (-lengths[i][0], prompts[i], -lengths[i][-1])):
        joined = [*batches[-1], index] if batches else []
        padded_length = sum(max(sizes) for sizes in zip(*(lengths[i] for i in joined)))
        if 1 < len(joined) <= max_size and min(sum(lengths[i]) for i in joined) >= min_fill * padded_length:
            batches[-1] = joined
        else:
            batches.append([index])
    return batches


def infer(
    actor: Actor, samples: Sequence[TrainSample], temperature: float, micro_batch_size: int
) -> tuple[list[Floats], list[Floats]]:
    """Compute each sample's log-probabilities and values, without gradients; without a critic, return no values."""
    logprobs: dict[int, Floats] = {}
    values: dict[int, Floats] = {}
    for indices in micro_batches(samples, micro_batch_size, share=actor.shares_prompts):
        with torch.no_grad():
            out = actor.compute_logprobs([samples[index] for index in indices], temperature)
        for row, index in enumerate(indices):
            length = len(samples[index].response)
            logprobs[index] = out.logprobs[row, :length].double().cpu().numpy()
            if out.values is not None:
                values[index] = out.values[row, :length].double().cpu().numpy()
    return [logprobs[index] for index in sorted(logprobs)], [values[index] for index in sorted(values)]


def update(
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    samples: Sequence[TrainSample],
    config: UpdateConfig,
    *,
    value_coef: float = 0.0,
    value_clip: float = 0.0,
    temperature: float,
    max_tokens: int,
    epochs: int = 1,
    minibatches: int = 1,
    rng: np.random.Generator,
    processes: Processes = ALONE,
) -> dict[str, float]:
    """Update the model on the samples of a step, once per minibatch in each epoch; `rng` draws the minibatches.

    All processes must pass the same samples and identical `rng`; each computes a share of every gradient.

    Returns:
        Means over updates of loss, policy_loss, value_loss, grad_norm, entropy, clip_fraction, kl (divergence from the
        reference) and approx_kl (divergence from the model before the step).

    Raises:
        DivergedError: The loss or the gradient is not finite, or the policy loss is too large.
    """
    parameters = [parameter for parameter in actor.parameters() if parameter.requires_grad]
    metrics: list[dict[str, float]] = []
    for _ in range(epochs):
        for indices in np.array_split(rng.permutation(len(samples)), minibatches):
            minibatch = [samples[index] for index in indices]
            tokens = sum(len(sample.response) for sample in minibatch)
            targets = sum(int((~np.isnan(sample.returns)).sum()) for sample in minibatch if sample.returns is not None)
            parts: list[dict[str, float]] = []
            size = min(config.micro_batch_size, -(-len(minibatch) // processes.size))
            batches = micro_batches(minibatch, size, share=actor.shares_prompts)
            for part in batches[processes.rank :: processes.size]:
                batch = [minibatch[index] for index in part]
                out = actor.compute_logprobs(batch, temperature, entropy_grad=config.entropy_coef > 0)
                weights = token_weights(out.mask, config, len(minibatch), tokens, max_tokens)
                loss, sums_of_batch = _policy_loss(out, batch, weights, tokens, config)
                if out.values is not None:
                    error = _value_error(out, batch, value_clip) / targets
                    loss, sums_of_batch["value_loss"] = loss + value_coef * error, error.item()
                loss.backward()
                parts.append({"loss": loss.item(), **sums_of_batch})
            parts = processes.gather(parts)
            sums = {name: sum(part[name] for part in parts) for name in parts[0]}
            if not math.isfinite(sums["loss"]):
                raise DivergedError(
                    f"the loss is {sums['loss']}: lower --update.lr (--ppo.lr for PPO), or inspect the last rollouts"
                )
            if abs(sums["policy_loss"]) > config.max_loss:
                raise DivergedError(
                    f"the policy loss is {sums['policy_loss']:.3g}, above {config.max_loss:g}: lower --update.lr "
                    "(--ppo.lr for PPO), or raise update.max_loss"
                )
            processes.sum_gradients(parameters)
            norm = float(torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm))
            if not math.isfinite(norm):
                precision = "" if actor.model.dtype == torch.float32 else ", or use --dtype float32"
                raise DivergedError(f"the gradient is not finite: lower --update.lr (--ppo.lr for PPO){precision}")
            optimizer.step()
            optimizer.zero_grad()
            metrics.append({**sums, "grad_norm": norm})
    return {name: float(np.mean([row[name] for row in metrics])) for name in metrics[0]}


def _policy_loss(
    out: LogProbs, batch: Sequence[TrainSample], weights: torch.Tensor, tokens: int, config: UpdateConfig
) -> tuple[torch.Tensor, dict[str, float]]:
    """Compute a micro-batch's part of the policy loss and metrics of its minibatch, which has `tokens` tokens."""
    logprobs, device = out.logprobs, out.logprobs.device
    old = logprobs.detach()
    if batch[0].old_logprobs is not None:
        old = pad([sample.old_logprobs for sample in batch], device)
    advantages = pad([sample.advantages for sample in batch], device)
    losses = policy_loss(logprobs, old, advantages, config.clip_low, config.clip_high)
    with torch.no_grad():
        ratio = (logprobs - old).exp()
        clipped = (ratio < 1 - config.clip_low) | (ratio > 1 + config.clip_high)
        metrics = {
            "entropy": float((out.entropy.detach() * out.mask).sum() / tokens),
            "clip_fraction": float((clipped * out.mask).sum() / tokens),
            "approx_kl": float((kl_estimate(old, logprobs) * out.mask).sum() / tokens),
        }
    if config.entropy_coef:
        losses = losses - config.entropy_coef * out.entropy
    if batch[0].ref_logprobs is not None:
        kl = kl_estimate(logprobs, pad([sample.ref_logprobs for sample in batch], device))
        losses = losses + config.kl_coef * kl
        metrics["kl"] = float((kl.detach() * out.mask).sum() / tokens)
    loss = (losses * weights).sum()
    metrics["policy_loss"] = loss.item()
    return loss, metrics


def _value_error(out: LogProbs, batch: Sequence[TrainSample], clip: float) -> torch.Tensor:
    """Sum the value loss over all tokens with a target; with GAE over turns, only the first of a response has one."""
    assert out.values is not None
    returns = pad([sample.returns for sample in batch], out.values.device)
    old_values = pad([sample.old_values for sample in batch], out.values.device)
    errors = value_loss(out.values, old_values, returns.nan_to_num(), clip)
    return errors.where(~returns.isnan() & out.mask, 0.0).sum()


def pad(arrays: Sequence[Floats | None], device: torch.device) -> torch.Tensor:
    """Stack arrays of different lengths into a float32 tensor, padded with zeros on the right."""
    return pad_sequence([torch.as_tensor(array, dtype=torch.float32) for array in arrays], True).to(device)
