"""What a model is worth on positions that are drawn apart from those of training: reward, and what it sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from training.core.seats import PlayConfig, take_seats
from training.local.actor import Actor
from training.local.config import TrainConfig
from training.local.rollout import roll_out
from vlmgym.curriculum import Curriculum, Progress
from vlmgym.evaluation.summary import confidence_interval
from vlmgym.sandbox.game import Picture

HELD_OUT = 0x68656C64
"""Added to the seed of the positions: those of training have the seed itself. Rows of a table are split besides."""

Eye = Literal["open", "blank", "shuffled"]
"""What the model sees: the picture, a grey one, or that of another position."""


@dataclass(frozen=True)
class HeldOut:
    """Answers to held-out positions.

    Attributes:
        answers: How many.
        reward: Mean overall reward.
        interval: Its 95% confidence interval (Student's t); None if all are equal.
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

    def words(self) -> str:
        """In one line."""
        low, high = self.interval or (self.reward, self.reward)
        seen = "" if self.perception is None else f", {self.perception:.0%} of cells seen right"
        return (
            f"reward {self.reward:.3f} ({low:.3f} to {high:.3f}) over {self.answers} held-out positions"
            f"{seen}, {self.format:.0%} in form"
        )

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def blank(picture: Picture) -> Picture:
    """A grey picture of the same shape."""
    return np.full_like(picture, 128)


def answer_held_out(
    actor: Actor,
    config: TrainConfig,
    curriculum: Curriculum,
    progress: Progress,
    eye: Eye = "open",
    temperature: float | None = None,
    answers: int | None = None,
) -> HeldOut:
    """Answer held-out positions at the present stage of the curriculum, once each.

    Args:
        actor: The model.
        config: Which positions, how many, and how responses are written.
        curriculum: Which games.
        progress: Where in the curriculum.
        eye: What the model sees.
        temperature: Instead of the configuration's.
        answers: Instead of the configuration's number.
    """
    count = config.evaluation.states if answers is None else answers
    warmth = config.evaluation.temperature if temperature is None else temperature
    rows = range(count)
    play = PlayConfig(turns=1)
    where = (curriculum, progress, config.seed + HELD_OUT, rows, 1)
    seats = list(take_seats(*where, play, config.states, config.reward, held_out=True))
    if eye == "shuffled":
        pictures = [seat.position.images for seat in seats]
        for seat, other in zip(seats, [*pictures[1:], *pictures[:1]]):
            seat.position = replace(seat.position, images=other)
    look: Callable[[Picture], Picture] | None = blank if eye == "blank" else None
    rollout = replace(config.rollout, temperature=warmth)
    played = roll_out(actor, seats, rollout, (config.seed, HELD_OUT), look)
    found = [answer.turn.reward for answer in played.answers]
    rewards = [reward.overall for reward in found]
    seen = [reward.perception for reward in found if reward.perception is not None]
    return HeldOut(
        answers=len(found),
        reward=float(np.mean(rewards)),
        interval=confidence_interval(rewards),
        perception=float(np.mean(seen)) if seen else None,
        format=float(np.mean([reward.format for reward in found])),
    )
