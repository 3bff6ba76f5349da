"""How games go at a level: random, random-legal and oracle play, measured episode by episode."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from vlmgym.calibration.estimate import Estimate
from vlmgym.calibration.subject import AnyGame, Effort, Player
from vlmgym.sandbox.episode import Episode

Measures = Mapping[str, Estimate]
"""Measures by name, each the mean over episodes."""

EVERY = 10
"""Turns from one position at which an oracle's effort is counted to the next, because it searches again for that."""
CHANCE = 1
"""Random play has a stream of its own, beside the episode's."""


def play(
    game: AnyGame, player: Player, episodes: int, turns: int, effort: Effort | None = None, seed: int = 0
) -> Measures:
    """Episodes of one player.

    Measures: `score`, `turns`, `ended` (share of episodes that came to an end of their own), the game's metrics that
    are numbers; in random-legal play also `legal actions` (mean number in a position) and `share legal` (over all
    actions); of the oracle also `effort`, the mean over the positions of an episode.

    Args:
        game: The game.
        player: Who plays.
        episodes: How many, seeds from `seed` on.
        turns: Turns after which an episode is cut off.
        effort: How the oracle's effort is counted.
        seed: The first seed.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for number in range(seed, seed + episodes):
        for name, value in _episode(game, player, number, turns, effort).items():
            values[name].append(value)
    return {name: Estimate.of(found) for name, found in values.items()}


def _episode(game: AnyGame, player: Player, seed: int, turns: int, effort: Effort | None) -> dict[str, float]:
    episode, rng = Episode(game, seed), np.random.default_rng([seed, CHANCE])
    infos: list[Mapping[str, Any]] = []
    legal_counts: list[int] = []
    efforts: list[int] = []
    while episode.ended is None and episode.turn < turns:
        if player == "random":
            action = game.random_action(rng)
        elif player == "random-legal":
            legal = game.legal_actions(episode.state) or ()
            legal_counts.append(len(legal))
            action = legal[int(rng.integers(len(legal)))]
        else:
            if effort is not None and (not efforts if effort.whole else episode.turn % EVERY == 0):
                efforts.append(effort.count(game, episode.state))
            action = game.best_action(episode.state)
        infos.append(episode.act(action).info)
    measures = {"score": episode.score, "turns": float(episode.turn), "ended": float(episode.ended is not None)}
    metrics = game.metrics(episode.state, infos)
    measures |= {name: float(value) for name, value in metrics.items() if not isinstance(value, str)}
    if legal_counts:
        measures["legal actions"] = sum(legal_counts) / len(legal_counts)
        if number := action_count(game):
            measures["share legal"] = measures["legal actions"] / number
    if efforts:
        measures["effort"] = sum(efforts) / len(efforts)
    return measures


def action_count(game: AnyGame) -> int | None:
    """How many actions there are, legal or not; None where they cannot be counted."""
    space = game.action_space
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return math.prod(map(int, space.nvec)) if isinstance(space, spaces.MultiDiscrete) else None
