"""Helpers for tests of puzzles with a solver."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game

RNG = np.random.default_rng(0)
"""Generator for steps that draw no random numbers."""


def oracle_turns(game: Game[Any, Any], state: Any, most: int = 200) -> int:
    """Play the oracle to the end and return the number of turns."""
    for turn in range(most):
        if game.ended(state) is not None:
            return turn
        state = game.step(state, game.best_action(state), RNG).state
    raise AssertionError(f"the oracle of {game.name} did not finish in {most} turns")


def fewest_turns(game: Game[Any, Any], state: Any, key: Callable[[Any], Hashable]) -> int:
    """Return the minimum number of turns to the end, by breadth-first search; `key` identifies a state."""
    seen, layer, turns = {key(state)}, [state], 0
    while layer:
        following = []
        for one in layer:
            if game.ended(one) is not None:
                return turns
            for action in game.legal_actions(one) or ():
                after = game.step(one, action, RNG).state
                if key(after) not in seen:
                    seen.add(key(after))
                    following.append(after)
        layer, turns = following, turns + 1
    raise AssertionError("no end can be reached")


def scores(game: Game[Any, Any], seeds: Iterable[int], most: int = 500) -> list[float]:
    """Return the oracle's score for each seed, after at most `most` turns."""
    found = []
    for seed in seeds:
        episode: Episode[Any, Any] = Episode(game, seed)
        while episode.ended is None and episode.turn < most:
            episode.act(game.best_action(episode.state))
        found.append(episode.score)
    return found
