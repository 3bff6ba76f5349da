"""The model that is being trained as a policy of the evaluator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from training.core.rollouts import blank
from training.local.actor import Actor
from vlmgym.errors import VlmgymError
from vlmgym.policies.base import PolicyOptions, Prompt, Reply
from vlmgym.policies.batching import BatchPolicy


@dataclass(frozen=True, kw_only=True)
class LiveOptions(PolicyOptions):
    """What decides about its responses, beside its weights."""

    step: int
    """Steps of reinforcement learning it has had."""
    temperature: float
    """0 takes the likeliest tokens."""
    max_tokens: int
    """Longest response."""
    batch: int
    """Prompts that are answered at once, at most."""
    blank: bool
    """Whether it sees grey images instead."""


class LivePolicy(BatchPolicy):
    """Answers whatever prompts are ready, in batches, with the weights as they are."""

    name = "training"
    counts_tokens = True
    options: LiveOptions

    def __init__(self, actor: Actor, options: LiveOptions) -> None:
        super().__init__(options)
        self.max_batch_size = options.batch
        self._actor = actor
        if options.blank:
            self.transform = blank

    async def respond_to_batch(self, shown: list[list[Any]], prompts: list[Prompt]) -> list[Reply | VlmgymError]:
        """Generate a reply to each prompt."""
        encoder = self._actor.encoder
        encoded = [encoder.encode(str(prompt), images) for images, prompt in zip(shown, prompts)]
        seeds = [int(np.random.SeedSequence([prompt.seed, prompt.turn]).generate_state(1)[0]) for prompt in prompts]
        responses = self._actor.respond(
            encoded, range(len(encoded)), seeds, self.options.max_tokens, self.options.temperature
        )
        return [self._actor.reply(prompt, response) for prompt, response in zip(encoded, responses)]
