"""The model that is being trained as a policy of the evaluator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from training.core.rollouts import blank
from training.local.actor import Actor
from vlmgym.errors import VlmgymError
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply
from vlmgym.policies.batching import Batcher
from vlmgym.sandbox.core.game import ImageArray


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


class LivePolicy(ModelPolicy):
    """Answers whatever prompts are ready, in batches, with the weights as they are."""

    name = "training"
    counts_tokens = True
    options: LiveOptions

    def __init__(self, actor: Actor, options: LiveOptions) -> None:
        super().__init__(options)
        self._actor = actor
        if options.blank:
            self.transform = blank

    async def open(self) -> None:
        """Begin to gather batches."""
        self._batcher = Batcher(self._ask, self.options.batch)

    async def close(self) -> None:
        """Ask no more."""
        self._batcher.close()

    def set_running_episodes(self, episodes: int) -> None:
        """A batch is full when every running episode waits."""
        self._batcher.set_running_episodes(episodes)

    async def respond(self, images: list[ImageArray], prompt: Prompt) -> Reply:
        """The model's response, generated together with whatever else is ready."""
        return await self._batcher.respond(images, prompt)

    async def _ask(self, shown: list[list[Any]], prompts: list[Prompt]) -> list[Reply | VlmgymError]:
        encoder = self._actor.encoder
        encoded = [encoder.encode(str(prompt), images) for images, prompt in zip(shown, prompts)]
        seeds = [int(np.random.SeedSequence([prompt.seed, prompt.turn]).generate_state(1)[0]) for prompt in prompts]
        responses = self._actor.respond(
            encoded, range(len(encoded)), seeds, self.options.max_tokens, self.options.temperature
        )
        return [self._actor.reply(prompt, response) for prompt, response in zip(encoded, responses)]
