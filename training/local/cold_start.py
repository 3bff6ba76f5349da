"""Cold start: supervised learning of what to look at and how to respond, until both are learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from training.core.teacher import Teacher
from training.local.actor import Actor, Sample, TrainingError
from vlmgym.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ColdStartConfig:
    """What is learned before reinforcement learning."""

    steps: int = 0
    """Batches at most; 0: no cold start."""
    batch: int = 32
    """Responses in a batch, each to a fresh position."""
    lr: float = 3e-3
    """Highest learning rate; it rises for 20 steps and falls as a cosine to 2% over all steps."""
    right: float = 0.4
    """Share of right answers; the others are random, so that the answer is left to be learned by rewards."""
    teacher: Teacher = "greedy"
    """Whose answers are right: the game's oracle, or an action of the highest reward of this one turn (greedy)."""
    until: float = 0.99
    """Stop once this share of cells is seen right, and of responses has the form, in generated responses."""
    check_every: int = 100
    """Steps between such looks."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.batch < 1 or self.check_every < 1 or not 0 <= self.right <= 1 or self.lr <= 0:
            raise UsageError("a cold start has steps >= 0, batch and check_every >= 1, right from 0 to 1, and lr > 0")


def supervised_loss(actor: Actor, samples: Sequence[Sample]) -> torch.Tensor:
    """Mean negative log-likelihood of the responses' tokens."""
    measured = actor.measure(samples)
    return -measured.logprobs.sum() / measured.mask.sum()


def learning_rate(config: ColdStartConfig, step: int) -> float:
    """Of a step, counted from 0."""
    warm = min(1.0, (step + 1) / 20)
    return config.lr * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / config.steps)))


def cold_start(
    actor: Actor,
    config: ColdStartConfig,
    draw: Callable[[int], list[Sample]],
    seen: Callable[[], float],
    report: Callable[[int, float], None],
) -> int:
    """Learn, and return how many steps it took.

    Args:
        actor: The model.
        config: How.
        draw: The batch of a step.
        seen: Share of cells seen right and of responses in form, whichever is less, in generated responses.
        report: Called with step and loss.
    """
    parameters = [parameter for parameter in actor.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, config.lr, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(config.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        loss = supervised_loss(actor, draw(step))
        if not math.isfinite(loss.item()):
            raise TrainingError(f"the loss of the cold start is {loss.item()}: lower --cold-start.lr")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        report(step, loss.item())
        if (step + 1) % config.check_every == 0 and seen() >= config.until:
            return step + 1
    return config.steps
