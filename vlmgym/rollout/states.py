"""Initial states for training and validation: a pure function of game, configs, seed and index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from vlmgym.errors import GenerationError, UsageError
from vlmgym.policies.baselines import random_legal_action
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import RewardConfig, score_action
from vlmgym.sandbox.core.task import Task

StateT = TypeVar("StateT")
ActionT = TypeVar("ActionT")

Mover = Literal["random-legal", "oracle", "rule"]

FIRST_VALIDATION_SEED = 1_000_000
"""First seed of validation episodes, for every game."""
VALIDATION_STREAM = 0x68656C64
"""Added to the seed of validation states, so that they differ from training states."""
MAX_ATTEMPTS = 1000
"""Maximum number of states sampled to find an informative one."""
MAX_ACTIONS = 4096
"""Largest action space that is enumerated."""
_STREAM = 0x737461746573
"""Separates these random streams from evaluation episodes, whose seeds are single numbers."""


@dataclass(frozen=True, kw_only=True)
class StateConfig:
    """Distribution of initial states."""

    moves: tuple[int, int] = (0, 0)
    """Minimum and maximum number of moves made before the state, drawn uniformly. 0 0 gives initial states."""
    mover: Mover = "random-legal"
    """Policy that makes these moves. If a move ends the game, the state before that move is used."""
    informative: bool = False
    """Keep only states where actions earn different rewards; others provide no learning signal."""
    validation_fraction: float = 0.1
    """Fraction of a finite dataset's questions that is reserved for validation and never trained on."""

    def __post_init__(self) -> None:
        if not 0 <= self.moves[0] <= self.moves[1]:
            raise UsageError(f"moves must be a minimum and a maximum, such as 0 20, got {self.moves}")
        if not 0 < self.validation_fraction < 1:
            raise UsageError(f"validation_fraction must be between 0 and 1, got {self.validation_fraction}")


class QuestionSplit(NamedTuple):
    """Seeds of the questions of a finite dataset."""

    validation: range
    training: range

    def seed(self, index: int, *, validation: bool) -> int:
        """Return the seed of a question; indices cycle through those for training or for validation."""
        seeds = self.validation if validation else self.training
        return seeds[index % len(seeds)]


@lru_cache(maxsize=64)
def split_questions(game: Game[Any, Any], validation_fraction: float) -> QuestionSplit | None:
    """Split the questions of a finite dataset into validation and training; return None if the game has no dataset.

    Each of the N seeds from 1,000,000 on selects a different question. The first N x fraction, rounded down, are for
    validation, so `vlmgym eval --seed 1000000` begins with them, and the others are for training. Seeds with unusable
    rows at the end of either part are dropped. The same data and fraction always give the same split.

    Raises:
        UsageError: A split would be empty, or the data cannot be opened.
    """
    count = game.question_count if isinstance(game, Task) else None
    if count is None:
        return None
    middle, end = FIRST_VALIDATION_SEED + int(count * validation_fraction), FIRST_VALIDATION_SEED + count
    split = QuestionSplit(_drop_bad_tail(game, FIRST_VALIDATION_SEED, middle), _drop_bad_tail(game, middle, end))
    if not (split.validation and split.training):
        raise UsageError(
            f"{game.name} has {count:,} questions, too few to keep a fraction of {validation_fraction:g} for "
            "validation: provide more data or change validation_fraction of the states"
        )
    return split


def _drop_bad_tail(game: Game[Any, Any], first: int, end: int) -> range:
    """Return the seeds, except trailing ones whose unusable rows would be replaced with rows of the other part."""
    while end > first and game.start_at(end - 1, np.random.default_rng(0)).skipped:
        end -= 1
    return range(first, end)


def sample_state(
    game: Game[Any, Any],
    seed: int,
    index: int,
    config: StateConfig = StateConfig(),
    reward: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
    *,
    validation: bool = False,
) -> Snapshot:
    """Sample an initial state, as a snapshot of an episode that starts there with its own random generator.

    For a finite dataset, indices cycle in order through the training questions or, if `validation`, through the
    validation questions; without a dataset, `validation` has no effect.

    Raises:
        GenerationError: None of 1,000 states was informative.
        UsageError: `informative` is set and the actions of the game cannot be enumerated, or the states of the game
            cannot be restored.
    """
    game.check_restorable()
    split = split_questions(game, config.validation_fraction)
    question = index if split is None else split.seed(index, validation=validation)
    for attempt in range(MAX_ATTEMPTS if config.informative else 1):
        rng = np.random.default_rng([_STREAM, seed, index, attempt])
        episode: Episode[Any, Any] = Episode(game, question, reward, rng=rng)
        with episode.game_errors(UsageError):
            _advance(episode, int(rng.integers(config.moves[0], config.moves[1] + 1)), config.mover)
            if not config.informative or _is_informative(game, episode.state, reward):
                return episode.snapshot()
    raise GenerationError(
        f"no informative state of {game.name} among {MAX_ATTEMPTS}: in each, all actions earn the same reward"
    )


def _advance(episode: Episode[Any, Any], moves: int, mover: Mover) -> None:
    """Make moves without ending the episode; only the state and the random generator advance."""
    game = episode.game
    for _ in range(moves):
        state = episode.state
        if mover == "random-legal":
            action = random_legal_action(game, state, episode.rng)
        else:
            action = game.best_action(state) if mover == "oracle" else game.rule_action(state)
        if action is None:
            return
        step = game.step(state, action, episode.rng)
        if game.ended(step.state) is not None:
            return
        episode.state = step.state


def all_actions(game: Game[Any, ActionT]) -> list[ActionT]:
    """List the action space, including illegal actions; raise `UsageError` if it cannot be enumerated."""
    if (actions := game.answer.actions(MAX_ACTIONS)) is None:
        raise UsageError(
            f"the actions of {game.name} cannot be enumerated, as informative states and the greedy expert require"
        )
    return actions


def action_rewards(game: Game[StateT, Any], state: StateT, reward: RewardConfig) -> Iterator[float]:
    """Yield the immediate reward of each action in `all_actions`, in order, all with the same random numbers."""
    rng = np.random.default_rng(0)
    start = rng.bit_generator.state
    for action in all_actions(game):
        rng.bit_generator.state = start  # faster than a new generator
        yield score_action(game, state, action, rng, reward).total


def _is_informative(game: Game[StateT, Any], state: StateT, reward: RewardConfig) -> bool:
    rewards = action_rewards(game, state, reward)
    first = next(rewards)
    return any(other != first for other in rewards)
