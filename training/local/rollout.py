"""Rollouts: the model answers positions, or plays episodes, many at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from training.core.checks import check_numbers
from training.local.actor import Actor, Sample, each_once
from vlmgym.errors import UsageError
from vlmgym.records.episode import TurnRecord
from vlmgym.rollout.episode import EpisodeRollout

_STREAM = 0x746F6B656E73
"""Keeps the chance of tokens apart from that of positions."""


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How responses are written."""

    max_tokens: int = 512
    """Longest response."""
    temperature: float = 1.0
    """What log-probabilities are divided by, in rollouts and when they are learned from."""
    batch: int = 64
    """Prompts that are answered at once, at most."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.batch < 1:
            raise UsageError("max_tokens and batch are at least 1")
        check_numbers(self, at_least_0=("temperature",))


class Rollout(NamedTuple):
    """What was played.

    Attributes:
        answers: All answers, episode by episode, the turns of each in order.
        scoring: Seconds that scoring responses and drawing the next images took.
    """

    answers: list[Answer]
    scoring: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A response in an episode.

    Attributes:
        row: Number of the episode's first position; episodes of a group have the same.
        copy: Which of the group.
        sample: Prompt and response as tensors and tokens.
        reward: The turn's total reward.
        turn: The turn's record.
    """

    row: int
    copy: int
    sample: Sample
    reward: float
    turn: TurnRecord


def roll_out(actor: Actor, episodes: Sequence[EpisodeRollout], config: RolloutConfig, chance: Sequence[int]) -> Rollout:
    """Play episodes to their end, all together.

    Args:
        actor: The model.
        episodes: The episodes; they are played in place.
        config: How responses are written.
        chance: Seed of the tokens; a response's own follows from it and row, copy and turn.
    """
    answers: list[list[Answer]] = [[] for _ in episodes]
    scoring = 0.0
    while waiting := [number for number, episode in enumerate(episodes) if not episode.done]:
        for first in range(0, len(waiting), config.batch):
            numbers = waiting[first : first + config.batch]
            # Copies of a row begin at one and the same position.
            positions, asked = each_once([episodes[number].observation for number in numbers])
            prompts = [actor.encoder.encode(position.prompt, position.images) for position in positions]
            seeds = [token_seed(chance, episodes[number]) for number in numbers]
            responses = actor.respond(prompts, asked, seeds, config.max_tokens, config.temperature)
            began = time.perf_counter()
            for number, place, response in zip(numbers, asked, responses):
                episode, prompt = episodes[number], prompts[place]
                turn = episode.respond(actor.reply(prompt, response))
                answers[number].append(
                    Answer(episode.prompt_id, episode.sample_idx, Sample(prompt, response), turn.reward.total, turn)
                )
            scoring += time.perf_counter() - began
    return Rollout([answer for each in answers for answer in each], scoring)


def token_seed(chance: Sequence[int], episode: EpisodeRollout) -> int:
    """Seed of the tokens of a episode's next response."""
    place = [_STREAM, *chance, episode.prompt_id, episode.sample_idx, len(episode.turns)]
    return int(np.random.SeedSequence(place).generate_state(1, np.uint64)[0] >> np.uint64(1))
