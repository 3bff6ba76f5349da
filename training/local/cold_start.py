"""Cold start: supervised learning of what to look at and how to respond, until both are learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from training.core.checks import check_numbers
from training.core.expert import Expert
from training.local.actor import Actor, Sample
from training.local.errors import DivergedError
from training.local.micro_batches import micro_batches
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
    teacher: Expert = "greedy"
    """Whose answers are right: the game's oracle, or an action of the highest reward of this one turn (greedy)."""
    answers_before: int = 0
    """Random answers that are played before a position, at most; how many is drawn uniformly. The next prompt says why
    one was not played; where --play.max-turns is above 1, one may come before."""
    until: float = 0.99
    """Stop once this share of cells is seen right, and of responses has the form, in generated responses. More than 1:
    take all steps, as the answer may be learned after both."""
    check_every: int = 100
    """Steps between such looks; there is one at the end, too."""
    gate: float = 0.5
    """Share of cells seen right, and of responses in form, without which reinforcement learning is not begun: it has
    nothing to go by. 0: it is begun whatever was learned."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.batch < 1 or self.check_every < 1 or not 0 <= self.right <= 1:
            raise UsageError("a cold start has steps >= 0, batch and check_every >= 1, and right from 0 to 1")
        check_numbers(self, at_least_0=("until", "answers_before"), above_0=("lr",))
        if not 0 <= self.gate <= 1:
            raise UsageError(f"the gate of a cold start is a share, 0 to 1, not {self.gate}")


def supervised_step(actor: Actor, samples: Sequence[Sample], micro_batch: int) -> float:
    """Add the gradient of the mean negative log-likelihood of the responses' tokens, and return it.

    Args:
        actor: The model.
        samples: What is learned.
        micro_batch: How many go through the model at once, at most; the gradient does not depend on it.
    """
    tokens = sum(len(sample.response) for sample in samples)
    total = 0.0
    for places in micro_batches(samples, micro_batch):
        loss = -actor.measure([samples[place] for place in places]).logprobs.sum() / tokens
        if not math.isfinite(loss.item()):
            raise DivergedError(f"the loss of the cold start is {loss.item()}: lower --cold-start.lr")
        loss.backward()
        total += loss.item()
    return total


def learning_rate(config: ColdStartConfig, step: int) -> float:
    """Of a step, counted from 0."""
    warm = min(1.0, (step + 1) / 20)
    return config.lr * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / config.steps)))


def cold_start(
    actor: Actor,
    config: ColdStartConfig,
    micro_batch: int,
    batches: Iterable[Sequence[Sample]],
    seen: Callable[[], float],
    report: Callable[[int, float], None],
) -> int:
    """Learn, and return how many steps it took; the last thing that is called is `seen`.

    Args:
        actor: The model.
        config: How.
        micro_batch: Responses that go through the model at once, at most.
        batches: What is learned, a batch for each step.
        seen: Share of cells seen right and of responses in form, whichever is less, in generated responses.
        report: Called with step and loss.

    Raises:
        DivergedError: The loss is not finite.
    """
    parameters = [parameter for parameter in actor.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, config.lr, betas=(0.9, 0.98), weight_decay=0.01)
    for step, samples in zip(range(config.steps), batches):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        loss = supervised_step(actor, samples, micro_batch)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        report(step, loss)
        last = step + 1 == config.steps
        if ((step + 1) % config.check_every == 0 or last) and (seen() >= config.until or last):
            return step + 1
    return config.steps
