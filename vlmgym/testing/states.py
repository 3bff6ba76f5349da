"""Sample states and actions of a game."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction, UsageError
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import make_game

AnyGame = Game[Any, Any]
Seeds = Sequence[int]

TURNS = 8
"""Maximum number of moves to play per seed."""
ACTIONS = 300
"""Maximum number of actions to try in a state."""
MAX_TURNS_TO_END = 500
"""Maximum number of random moves to reach a final state."""


def at_level(game: str | type[AnyGame], perception: int = 3, reasoning: int = 3, **overrides: Any) -> AnyGame:
    """Create a game at these levels from its id, or from its class, which need not be registered."""
    if isinstance(game, str):
        return make_game(game, perception, reasoning, **overrides)
    return game(game.Config.at(perception, reasoning, **overrides))


def same_game_again(game: AnyGame) -> AnyGame:
    """Create another game object with the same config, without cached data."""
    return type(game)(game.config)


def walk(game: AnyGame, seed: int) -> Iterator[Any]:
    """Yield the states of an episode of random legal moves."""
    chooser, rng = np.random.default_rng([seed, 2]), np.random.default_rng(seed)
    state = game.start(rng)
    yield state
    for _ in range(TURNS):
        if (action := choose(game, state, chooser)) is None:
            return
        state = game.step(state, action, rng).state
        yield state


def sample_states(game: AnyGame, seeds: Seeds) -> Iterator[Any]:
    """Yield the states of one random episode per seed."""
    for seed in seeds:
        yield from walk(game, seed)


def find_final_state(game: AnyGame, seed: int) -> Any:
    """Return a final state reached by random play, or None."""
    chooser, rng = np.random.default_rng([seed, 3]), np.random.default_rng(seed)
    state = game.start(rng)
    for _ in range(MAX_TURNS_TO_END):
        if game.ended(state) is not None:
            return state
        if (action := choose(game, state, chooser)) is None:
            return None
        state = game.step(state, action, rng).state
    return None


def choose(game: AnyGame, state: Any, chooser: np.random.Generator) -> Any:
    """Choose a random legal action; None in a final state."""
    legal = legal_actions(game, state)
    return legal[int(chooser.integers(len(legal)))] if legal else None


def legal_actions(game: AnyGame, state: Any) -> list[Any]:
    """List the legal actions, or sample the action space if the game does not list them."""
    listed = game.legal_actions(state)
    return list(islice(sample_actions(game), 50)) if listed is None else list(listed)


def sample_actions(game: AnyGame) -> Iterator[Any]:
    """Yield all actions of a small space, or samples of a large one."""
    space = game.action_space
    if isinstance(space, spaces.Discrete) and space.n <= ACTIONS:
        yield from range(int(space.start), int(space.start + space.n))
    elif isinstance(space, spaces.MultiDiscrete) and space.nvec.prod() <= ACTIONS:
        yield from product(*map(range, space.nvec.tolist()))
    else:
        rng = np.random.default_rng(0)
        for _ in range(ACTIONS):
            yield game.random_action(rng)


def actions_out_of_range(game: AnyGame) -> list[Any]:
    """Return actions outside a discrete space, such as -1, which is a valid index in Python but not an action.

    Other spaces give an empty list.
    """
    space = game.action_space
    if isinstance(space, spaces.Discrete):
        return [int(space.start) - 1, int(space.start + space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        inside = [0] * space.nvec.size
        edges = [(i, beyond) for i, n in enumerate(space.nvec.tolist()) for beyond in (-1, n, 10**6)]
        return [(*inside[:i], beyond, *inside[i + 1 :]) for i, beyond in edges]
    return []


def in_space(game: AnyGame, action: Any) -> bool:
    """Return whether an action has the right type and is in the action space."""
    try:
        fits = game.to_action(action) == action
    except UsageError:
        return False
    return fits and game.action_space.contains(np.asarray(action) if isinstance(action, tuple) else action)


def accepts(game: AnyGame, state: Any, action: Any) -> bool:
    """Return whether `step` accepts an action."""
    try:
        game.step(state, action, np.random.default_rng(0))
    except IllegalAction:
        return False
    return True


def observation(game: AnyGame, state: Any) -> Any:
    """Return the images of a state in the form of the observation space."""
    images = game.images(state)
    return images[0] if len(images) == 1 else tuple(images)
