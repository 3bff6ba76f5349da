"""Terms of the losses, for each token. Tensors have shape (responses, tokens)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


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
