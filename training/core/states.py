"""Positions to train on: a pure function of configuration, seed and index, so that any row can be made again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeVar

import numpy as np
from gymnasium import spaces

from training.core.split import split_of
from vlmgym.errors import GenerationError, UsageError
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import RewardConfig, score_action

StateT = TypeVar("StateT")
ActionT = TypeVar("ActionT")

Mover = Literal["random-legal", "oracle"]

MOST_TRIES = 1000
"""Positions that are looked at for one that is informative."""
MOST_ACTIONS = 4096
"""Actions of a game whose positions can be told to be informative."""
_STREAM = 0x737461746573
"""Keeps the chance of sampling apart from that of evaluated episodes, whose seeds are single numbers."""


@dataclass(frozen=True, kw_only=True)
class StateConfig:
    """Which positions of a game are answered."""

    moves: tuple[int, int] = (0, 0)
    """Least and most moves made before the position; how many is drawn uniformly. 0 0: first positions."""
    mover: Mover = "random-legal"
    """Who makes them. A game that ends before is answered at its last position that goes on."""
    informative: bool = False
    """Take only positions in which not all actions earn the same reward: no other can teach which one is better."""
    held_out: float = 0.1
    """Share of a table's rows that are measured on and never trained on."""

    def __post_init__(self) -> None:
        least, most = self.moves
        if not 0 <= least <= most:
            raise UsageError(
                f"moves are the least and the most moves before a position, such as 0 20, not {self.moves}"
            )
        if not 0 < self.held_out < 1:
            raise UsageError(f"held_out is a share of rows, more than 0 and less than 1, not {self.held_out}")


def sample_state(
    game: Game[Any, Any],
    seed: int,
    index: int,
    config: StateConfig = StateConfig(),
    reward: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
    *,
    held_out: bool = False,
) -> Snapshot:
    """A position to answer, as an episode that begins there with chance of its own.

    Args:
        game: The game.
        seed: Seed of the training run, at least 0.
        index: Number of the position, at least 0. Equal arguments give equal positions; a task over a table takes its
            rows one after the other, those that are not held out.
        config: Which positions.
        reward: What `informative` compares.
        held_out: Take a table's held-out rows instead.

    Raises:
        GenerationError: Of 1,000 positions none was informative.
        UsageError: The actions of the game cannot be listed, as `informative` needs.
    """
    split, question = split_of(game, config.held_out), index
    if split is not None:
        seeds = split.held_out if held_out else split.training
        question = seeds[index % len(seeds)]
    for attempt in range(MOST_TRIES if config.informative else 1):
        rng = np.random.default_rng([_STREAM, seed, index, attempt])
        episode: Episode[Any, Any] = Episode(game, question, reward, rng=rng)
        _move_on(episode, int(rng.integers(config.moves[0], config.moves[1] + 1)), config.mover)
        if not config.informative or _is_informative(game, episode.state, reward):
            snapshot = episode.snapshot()
            return snapshot.model_copy(
                update={"turn": 0, "score": 0.0, "outcomes": dict.fromkeys(snapshot.outcomes, 0), "feedback": ""}
            )
    raise GenerationError(f"of {MOST_TRIES} positions of {game.name} all actions earn the same in each: none can teach")


def _move_on(episode: Episode[Any, Any], moves: int, mover: Mover) -> None:
    """Play moves; the episode does not end."""
    game = episode.game
    for _ in range(moves):
        action = (
            game.best_action(episode.state) if mover == "oracle" else random_legal(game, episode.state, episode.rng)
        )
        if action is None:
            return
        before = episode.state
        episode.act(action)
        if episode.ended is not None:
            episode.state = before
            return


def random_legal(game: Game[StateT, ActionT], state: StateT, rng: np.random.Generator) -> ActionT | None:
    """A legal action drawn uniformly; any action where they cannot be listed; None in an ended position."""
    legal = game.legal_actions(state)
    if legal is None:
        return game.random_action(rng)
    return legal[int(rng.integers(len(legal)))] if legal else None


def all_actions(game: Game[Any, ActionT]) -> list[ActionT]:
    """Every action of the action space, legal or not.

    Raises:
        UsageError: They cannot be listed, or there are more than 4,096.
    """
    space = game.action_space
    if isinstance(space, spaces.Discrete) and space.n <= MOST_ACTIONS:
        return [game.to_action(int(space.start + i)) for i in range(int(space.n))]
    if isinstance(space, spaces.MultiDiscrete) and np.prod(space.nvec) <= MOST_ACTIONS:
        ranges = [range(int(start), int(start + n)) for start, n in zip(space.start, space.nvec)]
        return [game.to_action(action) for action in product(*ranges)]
    raise UsageError(
        f"the actions of {game.name} cannot be listed and compared, as informative positions and a greedy teacher need"
    )


def rewards_of_actions(game: Game[StateT, Any], state: StateT, reward: RewardConfig) -> Iterator[float]:
    """What each of `all_actions` earns at once, in their order; that does not depend on the chance of what comes after.

    Raises:
        UsageError: The actions cannot be listed.
    """
    rng = np.random.default_rng(0)
    start = rng.bit_generator.state
    for action in all_actions(game):
        rng.bit_generator.state = start  # all are compared under the same chance
        yield score_action(game, state, action, rng, reward).total


def _is_informative(game: Game[StateT, Any], state: StateT, reward: RewardConfig) -> bool:
    rewards = rewards_of_actions(game, state, reward)
    first = next(rewards)
    return any(earned != first for earned in rewards)
