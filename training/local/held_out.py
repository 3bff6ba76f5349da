"""What a model is worth on positions that are drawn apart from those of training: reward, and what it sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from training.core.rollouts import PlayConfig, blank, start_rollouts
from training.core.states import GATE_STREAM, VALIDATION_STREAM
from training.local.actor import Actor
from training.local.config import TrainConfig
from training.local.rollout import Rollout, roll_out
from vlmgym.curriculum import Curriculum, Progress
from vlmgym.evaluation.statistics import confidence_interval
from vlmgym.rollout.episode import EpisodeRollout
from vlmgym.sandbox.core.task import Task

Eye = Literal["open", "blank", "shuffled"]
"""What the model sees: the image, a grey one, or that of another position."""


@dataclass(frozen=True)
class HeldOut:
    """Answers to positions, one to each.

    Attributes:
        answers: How many.
        reward: Mean total reward.
        interval: Its 95% confidence interval (Wilson's if all are 0 or 1, else Student's t); None for one answer, and
            if all earn the same and that is neither 0 nor 1.
        perception: Mean share of cells seen right; None in a game without a truth to compare with.
        format: Share of answers in form.
    """

    answers: int
    reward: float
    interval: tuple[float, float] | None
    perception: float | None
    format: float

    @property
    def learned(self) -> float:
        """The share of cells seen right, or of answers in form, whichever is less."""
        return self.format if self.perception is None else min(self.format, self.perception)

    def words(self, of: str = "held-out positions") -> str:
        """In one line.

        Args:
            of: What was answered.
        """
        interval = "" if self.interval is None else f" ({self.interval[0]:.3f} to {self.interval[1]:.3f})"
        seen = "" if self.perception is None else f", {self.perception:.0%} of cells seen right"
        return f"reward {self.reward:.3f}{interval} over {self.answers} {of}{seen}, {self.format:.0%} in form"

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def validation_episodes(
    config: TrainConfig, curriculum: Curriculum, progress: Progress, count: int
) -> list[EpisodeRollout]:
    """Episodes at validation positions, which no training draws and no decision is made by.

    Args:
        config: Which positions.
        curriculum: Which games.
        progress: Where in the curriculum.
        count: How many.
    """
    where = (curriculum, progress, config.seed + VALIDATION_STREAM, range(count), 1)
    return list(start_rollouts(*where, PlayConfig(), config.states, config.reward, validation=True))


def answer_held_out(
    actor: Actor,
    config: TrainConfig,
    episodes: Sequence[EpisodeRollout],
    eye: Eye = "open",
    temperature: float | None = None,
) -> HeldOut:
    """Answer held-out positions, once each.

    Args:
        actor: The model.
        config: How responses are written.
        episodes: At the positions; they are played in place.
        eye: What the model sees.
        temperature: Instead of the configuration's.
    """
    shown = [episode.observation.images for episode in episodes]
    if eye == "blank":
        shown = [[blank(image) for image in images] for images in shown]
    elif eye == "shuffled":
        shown = [*shown[1:], *shown[:1]]
    for episode, images in zip(episodes, shown):
        episode.live.observation = episode.observation._replace(images=images)
    warmth = config.evaluation.temperature if temperature is None else temperature
    rollout = replace(config.rollout, temperature=warmth)
    return found_in(roll_out(actor, episodes, rollout, (config.seed, VALIDATION_STREAM)), are_shares(episodes, config))


def look_at_cold_start(
    actor: Actor, config: TrainConfig, curriculum: Curriculum, progress: Progress, count: int
) -> HeldOut:
    """Answer positions that are neither learned from nor measured on, to decide whether a cold start has taught enough.

    Of a table these are rows that are trained on, as all others are kept for measuring.

    Args:
        actor: The model.
        config: Which positions, and how responses are written.
        curriculum: Which games.
        progress: Where in the curriculum.
        count: How many.
    """
    where = (curriculum, progress, config.seed + GATE_STREAM, range(count), 1)
    episodes = list(start_rollouts(*where, PlayConfig(), config.states, config.reward, transform=config.look))
    rollout = replace(config.rollout, temperature=config.evaluation.temperature)
    return found_in(roll_out(actor, episodes, rollout, (config.seed, GATE_STREAM)), are_shares(episodes, config))


def are_shares(episodes: Sequence[EpisodeRollout], config: TrainConfig) -> bool:
    """Whether rewards that are 0 or 1 count what was right, and do not only happen to be no more."""
    return config.reward.shaping == "sign" or all(isinstance(episode.pick.game, Task) for episode in episodes)


def found_in(played: Rollout, shares: bool) -> HeldOut:
    """What answers are worth, whose rewards are shares or not."""
    found = [answer.turn.reward for answer in played.answers]
    rewards = [reward.total for reward in found]
    seen = [reward.perception for reward in found if reward.perception is not None]
    return HeldOut(
        answers=len(found),
        reward=float(np.mean(rewards)),
        interval=confidence_interval(rewards, within_one=shares),
        perception=float(np.mean(seen)) if seen else None,
        format=float(np.mean([reward.format for reward in found])),
    )
