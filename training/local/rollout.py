"""Rollouts: all episodes of a step in parallel, with batched generation."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from training.local.actor import Actor, deduplicate
from training.local.config import RolloutConfig
from training.local.encoding import TrainSample
from vlmgym.rollout.episode import EpisodeRollout

_STREAM = 0x746F6B656E73
"""Separates the random streams of tokens and states."""


def roll_out(
    actor: Actor, episodes: Sequence[EpisodeRollout], config: RolloutConfig, seed: Sequence[int]
) -> tuple[list[list[TrainSample]], float]:
    """Roll out all episodes in parallel until each one ends.

    The sampling seed of each response is derived from `seed`, prompt_id, sample_idx and turn.

    Returns:
        A sample for each turn of each episode, and the seconds spent on scoring and rendering.
    """
    samples: list[list[TrainSample]] = [[] for _ in episodes]
    seconds_scoring = 0.0
    while running := [number for number, episode in enumerate(episodes) if not episode.done]:
        for first in range(0, len(running), config.batch_size):
            batch = running[first : first + config.batch_size]
            # Episodes of a group start with the same observation.
            observations, index = deduplicate([episodes[number].observation for number in batch])
            prompts = [actor.encoder.encode(each.prompt, each.images) for each in observations]
            seeds = [token_seed(seed, episodes[number]) for number in batch]
            responses = actor.generate(prompts, index, seeds, config.max_tokens, config.temperature)
            start = time.perf_counter()
            for number, prompt_index, response in zip(batch, index, responses):
                prompt = prompts[prompt_index]
                episodes[number].respond(actor.reply(prompt, response))
                samples[number].append(TrainSample(prompt, response))
            seconds_scoring += time.perf_counter() - start
    return samples, seconds_scoring


def token_seed(seed: Sequence[int], episode: EpisodeRollout) -> int:
    """Derive the seed of the next response of an episode."""
    entropy = [_STREAM, *seed, episode.prompt_id, episode.sample_idx, len(episode.turns)]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
