"""Seats: the episodes of a batch, or the single positions that are answered, between a trainer's responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from training.core.states import StateConfig, sample_state
from vlmgym.curriculum import Curriculum, Pick, Progress
from vlmgym.errors import UsageError
from vlmgym.policies.base import Reply, identity
from vlmgym.records.episode import EpisodeRecord, PolicyRecord, TurnRecord, now
from vlmgym.rollout.turn import (
    EpisodeConfig,
    EpisodeState,
    Transform,
    episode_record,
    respond,
    state_after_limit,
    state_at,
)
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.reward import RewardConfig


def blank(image: ImageArray) -> ImageArray:
    """A grey image of the same shape: a control, which shows what can be learned without seeing."""
    return np.full_like(image, 128)


@dataclass(frozen=True, kw_only=True)
class PlayConfig:
    """How positions are answered."""

    turns: int = 1
    """Limit of turns. 1: single responses to sampled positions, for which nothing counts that comes later; more: whole
    episodes from there. For an episode that it cuts off, PPO counts what the critic expects of the position that was
    left; GRPO counts nothing."""
    history: int = 0
    """Earlier turns that a prompt repeats."""
    history_images: int = 0
    """Of how many of these turns the images are shown again."""

    def __post_init__(self) -> None:
        if self.turns < 1 or not 0 <= self.history_images <= self.history:
            raise UsageError("turns are at least 1, and history_images are 0 to history")


@dataclass
class Seat:
    """One episode that is played.

    Attributes:
        pick: Game and stage.
        rules: Reward, limits and history.
        row: Number of the first position among those of the training run; seats of a group have the same.
        copy: Which of the group.
        position: Where it stands.
        turns: What was played.
    """

    pick: Pick
    rules: EpisodeConfig
    row: int
    copy: int
    position: EpisodeState
    turns: list[TurnRecord] = field(default_factory=list)
    started: str = field(default_factory=now)

    @property
    def over(self) -> bool:
        """Whether the episode is over."""
        return self.position.end is not None

    @property
    def truncated(self) -> bool:
        """Whether the limit of turns cut the episode off: the game itself would go on."""
        return self.over and not self.position.terminated

    def beyond(self) -> EpisodeState:
        """The position at which a truncated episode was left, with the images and the prompt of its next turn."""
        return state_after_limit(self.rules, self.position)

    def respond(self, reply: Reply) -> TurnRecord:
        """Play a reply."""
        turn, self.position = respond(self.rules, self.position, reply, None)
        self.turns.append(turn)
        return turn

    def record(self, policy: PolicyRecord, copies: int) -> EpisodeRecord:
        """The episode in the evaluator's form; its `seed` is row x copies + copy."""
        return episode_record(
            self.rules,
            self.position,
            self.turns,
            policy=policy,
            seed=self.row * copies + self.copy,
            index=self.row * copies + self.copy,
            started=self.started,
            stage=self.pick.stage,
        )


def take_seats(
    curriculum: Curriculum,
    progress: Progress,
    seed: int,
    rows: Sequence[int],
    copies: int,
    play: PlayConfig,
    states: StateConfig,
    reward: RewardConfig,
    *,
    held_out: bool = False,
    look: Transform = identity,
) -> Iterator[Seat]:
    """Seats at the positions of some rows, row by row; those of a row begin at one position, with the same chance.

    Args:
        curriculum: Which games.
        progress: Where in the curriculum.
        seed: Seed of the training run.
        rows: Numbers of the positions.
        copies: Seats of each row.
        play: Limits.
        states: Which positions.
        reward: Weights and shaping.
        held_out: Whether a table's held-out rows are taken.
        look: What becomes of each image before the model sees it.
    """
    for row in rows:
        pick = curriculum.pick(progress, seed, row)
        rules = EpisodeConfig(pick.game, reward, play.turns, play.history, play.history_images, look)
        snapshot = sample_state(pick.game, seed, row, states, reward, held_out=held_out)
        position = state_at(rules, snapshot)
        for copy in range(copies):
            yield Seat(pick, rules, row, copy, position)
