"""Measure random, naive and oracle play."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.spec import AnyGame, CalibrationPlayer, Spec
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import pick

Measures = Mapping[str, Estimate]
"""Means over episodes by name."""

EVERY = 10
"""Turns between two counts of the oracle's effort; not every turn, because counting repeats the search."""
CHANCE = 1
"""Seed stream of random players, separate from the stream of the episode."""


def play(spec: Spec, game: AnyGame, player: CalibrationPlayer, episodes: int, seed: int = 0) -> Measures:
    """Play episodes and average their measures.

    Measures are `score`; in games with several turns, `turns` and `ended` (1 if the game ended within the limit of
    turns); the numeric metrics of the game; in random-legal play, `legal actions` (mean per state) and `share legal`
    (of all actions); `effort` of the oracle (mean per state); and for `questions`, only the facts of the spec.

    Args:
        spec: Calibration spec of the game.
        game: The game at one level.
        player: Player to measure.
        episodes: Number of episodes.
        seed: Seed of the first episode; the others have consecutive seeds.
    """
    values: dict[str, list[float]] = defaultdict(list)
    naive_player = spec.naive.make(game) if player == "naive" and spec.naive is not None else None
    for number in range(seed, seed + episodes):
        if player == "questions" and spec.facts is not None:
            measures = spec.facts(game, Episode(game, number).state)
        else:
            measures = _Play(spec, game, player, number, naive_player).measures()
        for name, value in measures.items():
            values[name].append(value)
    return {name: Estimate.of(samples) for name, samples in values.items()}


class _Play:
    """An episode of one player."""

    def __init__(
        self, spec: Spec, game: AnyGame, player: CalibrationPlayer, seed: int, known: Callable[[Any], Any] | None
    ) -> None:
        self._game, self._player, self._known = game, player, known
        self._effort, self._turns = spec.effort, spec.turns[player]
        self._episode, self._rng = Episode(game, seed), np.random.default_rng([seed, CHANCE])
        self._legal_counts: list[int] = []
        self._efforts: list[int] = []

    def measures(self) -> dict[str, float]:
        """Play the episode and measure it."""
        episode, game = self._episode, self._game
        infos: list[Mapping[str, Any]] = []
        while episode.ended is None and episode.turn < self._turns:
            infos.append(episode.act(self._action()).info)
        measures = {"score": episode.score}
        if self._turns > 1:
            measures |= {"turns": float(episode.turn), "ended": float(episode.ended is not None)}
        metrics = game.metrics(episode.state, infos)
        measures |= {name: float(value) for name, value in metrics.items() if not isinstance(value, str)}
        if self._legal_counts:
            measures["legal actions"] = sum(self._legal_counts) / len(self._legal_counts)
            if number := action_count(game):
                measures["share legal"] = measures["legal actions"] / number
        if self._efforts:
            measures["effort"] = sum(self._efforts) / len(self._efforts)
        return measures

    def _action(self) -> Any:
        game, state = self._game, self._episode.state
        if self._player == "random":
            return game.answer.sample(self._rng)
        if self._player == "random-legal":
            legal = game.legal_actions(state) or ()
            self._legal_counts.append(len(legal))
            return pick(self._rng, legal)
        if self._known is not None:
            return self._known(state)
        effort = self._effort
        if effort is not None and (not self._efforts if effort.whole else self._episode.turn % EVERY == 0):
            self._efforts.append(effort.count(game, state))
        return game.best_action(state)


def action_count(game: AnyGame) -> int | None:
    """Return the size of the action space, or None if it is not finite."""
    space = game.answer.space
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return math.prod(map(int, space.nvec)) if isinstance(space, spaces.MultiDiscrete) else None
