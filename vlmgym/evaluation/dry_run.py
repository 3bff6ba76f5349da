"""Estimate what an evaluation would send before it does: requests, images, tokens, cost and duration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.progress import call_in_order
from vlmgym.policies import PolicyOptions
from vlmgym.policies.base import SamplingOptions, policy_rng
from vlmgym.policies.baselines import RandomPolicy
from vlmgym.policies.openai.policy import OpenAIOptions
from vlmgym.policies.openai.providers import image_tokens
from vlmgym.rollout.turn import GameSetup, LiveEpisode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.task import Task
from vlmgym.workers.pool import ProcessPool, num_workers_for

PLAYED = 20
"""Maximum number of episodes per game that are played at random; further ones are assumed to be like these."""
CHARACTERS = 4
"""Characters per token of English text (https://ai.google.dev/gemini-api/docs/tokens, read 2026-11-27)."""
REQUESTS_PER_MINUTE = 600.0
"""Rate for the duration, as in the descriptions of suites, unless the provider of the user has another."""


@dataclass(frozen=True)
class DryRun:
    """Estimate of an evaluation in which the model plays as long as random play.

    Attributes:
        episodes: Number of episodes.
        requests: Number of requests without retries.
        images: Number of images of all prompts.
        characters: Number of characters of the texts of all prompts.
        most_requests: Number of requests if every episode reaches the turn limit.
        image_tokens: Tokens of all images; None if the rule of the model is unknown.
        rule: Tokens per image, and where the rule is published; why it is unknown if `image_tokens` is None.
    """

    episodes: int
    requests: float
    images: float
    characters: float
    most_requests: int
    image_tokens: int | None
    rule: str

    @property
    def text_tokens(self) -> int:
        """Approximate tokens of the texts of all prompts."""
        return round(self.characters / CHARACTERS)

    def lines(self, config: EvalConfig, options: PolicyOptions | None) -> list[tuple[str, str]]:
        """Return what is estimated, each with its name and assumptions."""
        requests = round(self.requests)
        longest = options.max_tokens if isinstance(options, SamplingOptions) else None
        output = None if longest is None else requests * longest
        provider = options.found_provider if isinstance(options, OpenAIOptions) else None
        rate = (provider.requests_per_minute if provider is not None else None) or REQUESTS_PER_MINUTE
        duration = timedelta(seconds=math.ceil(self.requests / rate * 60))
        return [
            ("episodes", f"{self.episodes:,}"),
            (
                "requests",
                f"{requests:,} if the model plays as long as random play; {self.most_requests:,} if every episode "
                f"reaches the turn limit of {config.max_turns:,}; retries come on top",
            ),
            ("images", f"{round(self.images):,}"),
            (
                "image tokens",
                f"unknown: {self.rule}" if self.image_tokens is None else f"{self.image_tokens:,} ({self.rule})",
            ),
            ("text tokens", f"about {self.text_tokens:,} ({CHARACTERS} characters per token)"),
            ("output tokens", "unknown" if output is None else f"at most {output:,} (--max-tokens {longest:,})"),
            ("cost", self._cost(config, options, output)),
            ("duration", f"{duration} at {rate:,g} requests per minute"),
        ]

    def _cost(self, config: EvalConfig, options: PolicyOptions | None, output: int | None) -> str:
        """Describe the cost of the prompts and of at most `output` tokens, at the user's or the provider's prices."""
        budget, where = config.budget, ""
        prices = None if budget.price_in is None or budget.price_out is None else (budget.price_in, budget.price_out)
        if prices is None and isinstance(options, OpenAIOptions) and options.found_provider is not None:
            prices = options.found_provider.price(options.model)
            where = f" (dollars; prices of {options.provider})"
        if prices is None:
            return "unknown: set --price-in and --price-out"
        if self.image_tokens is None:
            return "unknown, as are the image tokens"
        prompts = f"{(self.image_tokens + self.text_tokens) * prices[0] / 1e6:,.4g} for prompts"
        if output is None:
            return f"{prompts}, and {prices[1]:,.4g} per million output tokens{where}"
        return f"{prompts}, at most {output * prices[1] / 1e6:,.4g} for responses{where}"


def dry_run(
    games: Sequence[Game[Any, Any]],
    config: EvalConfig,
    options: PolicyOptions | None,
    finished: AbstractSet[tuple[str, int]],
) -> DryRun:
    """Estimate an evaluation of games; play the first `PLAYED` episodes of each at random, without drawing.

    Args:
        games: The games.
        config: Settings of the evaluation.
        options: Options of the policy, which name the model.
        finished: Game id and seed of episodes that need not be played again.
    """
    model, low = str(getattr(options, "model", "")), getattr(options, "detail", "") == "low"
    rule = image_tokens(model, options.found_provider if isinstance(options, OpenAIOptions) else None)
    remaining: list[tuple[GameSetup, list[int], int]] = []
    every = range(config.seed, config.seed + config.episodes)
    for game in games:
        config.check(game)
        unfinished = (seed for seed in every if (game.id, seed) not in finished)
        count = config.episodes - sum(name == game.id and seed in every for name, seed in finished)
        remaining.append((GameSetup(game, config.episode), [*islice(unfinished, PLAYED)], count * config.samples))
    calls = [(setup, seed) for setup, seeds, _ in remaining for seed in seeds]
    played: list[NDArray[np.float64]] = []
    with ProcessPool(num_workers_for(max(1, len(calls)), config.workers)) as workers:
        call_in_order(workers, count_prompts, calls, played.append, label="playing at random")
    results, total, tokens, most = iter(played), np.zeros(3), 0.0, 0
    for setup, seeds, count in remaining:
        sample = sum((next(results) for _ in seeds), np.zeros(3)) * count / max(1, len(seeds))
        shapes = setup.game.image_shapes
        total += sample
        most += count * (1 if isinstance(setup.game, Task) else config.max_turns)
        if rule is not None:
            per_state = sum(rule.count(width, height, low=low) for height, width, _ in shapes)
            tokens += sample[1] / len(shapes) * per_state
    if rule is None:
        how = f"no rule for {model} in providers.toml" if model else "name a --model"
    else:
        how = f"{tokens / max(1.0, total[1]):,.4g} per image, {rule.source}"
        how += f", read {rule.checked}" if rule.checked else ""
    episodes = sum(count for *_, count in remaining)
    requests, images, characters = total.tolist()
    return DryRun(episodes, requests, images, characters, most, None if rule is None else round(tokens), how)


def count_prompts(setup: GameSetup, seed: int) -> NDArray[np.float64]:
    """Play an episode at random, and count its prompts, their images and the characters of their texts.

    Raises:
        UsageError: The episode cannot start.
    """
    live, policy, total = LiveEpisode(setup, seed), RandomPolicy(), np.zeros(3)
    while not live.done:
        messages, episode = live.observation.messages, live.episode
        total += (1, sum(message.images for message in messages), sum(len(message.text) for message in messages))
        live.step(policy.respond(setup.game, episode.state, policy_rng(seed, episode.turn)))
    return total
