"""PPO with a value head (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) and GAE over tokens or turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from training.core.advantages import Floats, gae, whiten
from training.core.checks import check_numbers
from training.local.rollout import Answer
from training.local.update import Lesson
from vlmgym.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class PpoConfig:
    """Proximal policy optimisation."""

    lr: float | None = None
    """Highest learning rate of the model; None: that of --update.lr."""
    epochs: int = 4
    """Passes over the responses of a step."""
    minibatches: int = 4
    """Updates in a pass."""
    gamma: float = 0.99
    """Discount of a turn."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation over turns."""
    over: Literal["turns", "tokens"] = "turns"
    """Over what advantages are estimated. turns: the critic judges the position that is answered, and all tokens of an
    answer have its advantage; tokens: it judges each token, and within an answer gamma and lambda are `token_gamma`
    and `token_lam`."""
    token_gamma: float = 1.0
    """Discount of a token."""
    token_lam: float = 1.0
    """Lambda of a token."""
    clip: float = 0.2
    """A token's probability may move by this share of what it was before the advantage stops counting."""
    entropy: float = 0.01
    """Weight of the bonus for the entropy of tokens."""
    value: float = 0.5
    """Weight of the value loss."""
    value_clip: float = 0.2
    """How far a value may move from what it was before the step, in units of the reward; 0: any way."""
    value_lr: float = 1e-2
    """Learning rate of the value head."""
    whiten: bool = True
    """Give advantages mean 0 and standard deviation 1 over a step's tokens."""

    def __post_init__(self) -> None:
        for name in ("gamma", "lam", "token_gamma", "token_lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is 0 to 1, not {getattr(self, name)}")
        if self.epochs < 1 or self.minibatches < 1:
            raise UsageError("epochs and minibatches are at least 1")
        check_numbers(self, at_least_0=("lr", "clip", "entropy", "value", "value_clip", "value_lr"))


def ppo_lessons(
    answers: Sequence[Answer],
    logprobs: Sequence[Floats],
    values: Sequence[Floats],
    beyond: Mapping[tuple[int, int], float],
    config: PpoConfig,
) -> tuple[list[Lesson], dict[str, float]]:
    """What is learned from answers, and how much of their returns the critic explains.

    Args:
        answers: All answers of all episodes, the turns of each in order.
        logprobs: Log-probability of each token of each answer, before the step.
        values: What the critic expected before each token of each answer.
        beyond: What it expects of the positions at which episodes were cut off, by row and copy.
        config: How.
    """
    advantages, returns = ppo_advantages(answers, values, beyond, config)
    if config.whiten:
        flat = whiten(np.concatenate(advantages))
        advantages = np.split(flat, np.cumsum([len(each) for each in advantages])[:-1])
    lessons = [
        Lesson(answer.sample, better, logprobs=before, values=expected, returns=earned)
        for answer, better, before, expected, earned in zip(answers, advantages, logprobs, values, returns)
    ]
    # With lambda below 1, what the critic is trained on holds its own values: it is judged by what was earned.
    _, sums = ppo_advantages(answers, values, beyond, replace(config, lam=1.0, token_lam=1.0))
    return lessons, {"explained": explained_variance(np.concatenate(values), np.concatenate(sums))}


def ppo_advantages(
    answers: Sequence[Answer], values: Sequence[Floats], beyond: Mapping[tuple[int, int], float], config: PpoConfig
) -> tuple[list[Floats], list[Floats]]:
    """Advantages and returns of each token of each answer.

    Nothing comes after an episode that the game ended; one that the limit of turns cut off would have gone on, and what
    the critic expects of that stands for it (Gymnasium's `terminated` and `truncated`).

    Args:
        answers: All answers of all episodes, the turns of each in order.
        values: What the critic expected before each token of each answer.
        beyond: What it expects of the positions at which episodes were cut off, by row and copy.
        config: How.

    Returns:
        Two lists of arrays, an array of shape (tokens,) for each answer. With GAE over turns only the first return of
        an answer is one that the critic is trained on; the others are NaN.
    """
    episodes: dict[tuple[int, int], list[int]] = {}
    for place, answer in enumerate(answers):
        episodes.setdefault((answer.row, answer.copy), []).append(place)
    advantages: list[Floats] = [np.empty(0)] * len(answers)
    returns: list[Floats] = [np.empty(0)] * len(answers)
    for episode, places in episodes.items():
        after = beyond.get(episode, 0.0)
        if config.over == "turns":
            judged = [values[place][0] for place in places]
            rewards = [answers[place].reward for place in places]
            better, earned = gae(rewards, judged, config.gamma, config.lam, after)
            for place, advantage, return_ in zip(places, better, earned):
                advantages[place] = np.full(len(values[place]), advantage)
                returns[place] = np.full(len(values[place]), np.nan)
                returns[place][0] = return_
        else:
            advantage_after = 0.0
            for place in reversed(places):
                of_tokens = np.zeros(len(values[place]))
                # The step to the next answer is one of a turn: what follows it counts with gamma and lambda of turns.
                of_tokens[-1] = answers[place].reward + config.gamma * (after + config.lam * advantage_after)
                better, earned = gae(of_tokens, values[place], config.token_gamma, config.token_lam)
                advantages[place], returns[place] = better, earned
                after, advantage_after = float(values[place][0]), float(better[0])
    return advantages, returns


def explained_variance(values: Floats, returns: Floats) -> float:
    """How much of the variance of returns a critic explains: 1 all of it, 0 none, less than 0 worse than their mean.

    Returns that are NaN are not counted.
    """
    asked = ~np.isnan(returns)
    spread = np.var(returns[asked])
    return float(1 - np.var(returns[asked] - values[asked]) / spread) if spread > 0 else 0.0
