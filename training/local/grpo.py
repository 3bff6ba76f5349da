"""GRPO: a group of responses to one position is its own baseline (Shao et al. 2024, https://arxiv.org/abs/2402.03300)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.core.advantages import Floats, discounted_returns, normalise_groups
from training.local.rollout import Answer
from training.local.update import Lesson
from vlmgym.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """Group relative policy optimisation."""

    group: int = 8
    """Responses to each position, or episodes from it."""
    epochs: int = 1
    """Passes over the responses of a step."""
    minibatches: int = 1
    """Updates in a pass. In a single update probabilities have not moved yet, so that nothing is clipped."""
    scale: bool = True
    """Divide by the group's standard deviation; without, and with --loss-over constant, it is Dr. GRPO."""
    gamma: float = 1.0
    """Discount of a turn, in episodes of several."""

    def __post_init__(self) -> None:
        if self.group < 2:
            raise UsageError(f"a group has at least 2 responses, not {self.group}")
        if not 0 <= self.gamma <= 1:
            raise UsageError(f"gamma is 0 to 1, not {self.gamma}")
        if self.epochs < 1 or self.minibatches < 1:
            raise UsageError("epochs and minibatches are at least 1")

    @property
    def updates(self) -> int:
        """Of a step."""
        return self.epochs * self.minibatches


def grpo_lessons(
    answers: Sequence[Answer], logprobs: Sequence[Floats] | None, config: GrpoConfig
) -> tuple[list[Lesson], dict[str, float]]:
    """What is learned from answers, and the share of them whose group is informative.

    Args:
        answers: All answers of all episodes, the turns of each in order.
        logprobs: Log-probability of each token of each answer, before the step; None where a step is a single update,
            in which probabilities have not moved since answers were written.
        config: How.
    """
    advantages = grpo_advantages(answers, config)
    known: Sequence[Floats | None] = [None] * len(answers) if logprobs is None else logprobs
    lessons = [
        Lesson(answer.sample, np.full(len(answer.sample.response), advantage), logprobs=before)
        for answer, advantage, before in zip(answers, advantages, known)
    ]
    return lessons, {"informative": informative(answers)}


def grpo_advantages(answers: Sequence[Answer], config: GrpoConfig) -> list[float]:
    """The advantage of each answer, which all its tokens have.

    In episodes of several turns an answer earns the discounted rewards from its turn on, and is compared with what the
    other episodes of its group earn from the same turn on; episodes that are over by then earn nothing more, so that
    each turn is compared with all episodes of the group.

    Args:
        answers: All answers of all episodes, the turns of each in order.
        config: How.
    """
    episodes: dict[tuple[int, int], list[int]] = {}
    for place, answer in enumerate(answers):
        episodes.setdefault((answer.row, answer.copy), []).append(place)
    longest = max(map(len, episodes.values()))
    to_come = np.zeros((len(episodes), longest))
    for number, places in enumerate(episodes.values()):
        to_come[number, : len(places)] = discounted_returns([answers[place].reward for place in places], config.gamma)
    rows = [row for row, _ in episodes]
    better = np.stack([normalise_groups(to_come[:, turn], rows, config.scale) for turn in range(longest)], axis=1)
    advantages = [0.0] * len(answers)
    for number, places in enumerate(episodes.values()):
        for turn, place in enumerate(places):
            advantages[place] = float(better[number, turn])
    return advantages


def informative(answers: Sequence[Answer]) -> float:
    """Share of episodes whose group did not all earn the same: from the others nothing is learned."""
    earned: dict[int, dict[int, float]] = {}
    for answer in answers:
        group = earned.setdefault(answer.row, {})
        group[answer.copy] = group.get(answer.copy, 0.0) + answer.reward
    return float(np.mean([np.ptp([*group.values()]) > 1e-9 for group in earned.values() for _ in group]))
