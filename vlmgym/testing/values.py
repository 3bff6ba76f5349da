"""Positions are values: they survive JSON, and no method changes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from vlmgym.errors import StateError
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.testing.positions import TURNS, AnyGame, Seeds, choose, legal_actions, positions, same_game_again
from vlmgym.testing.transcript import act_and_tell, assert_same, digest


def check_json_round_trip(game: AnyGame, seeds: Seeds) -> None:
    """A position survives JSON, and a text that is no position is refused with `StateError`."""
    for state in positions(game, seeds):
        text = game.to_json(state)
        assert "\n" not in text, f"the JSON of a position has several lines: {text!r}"
        back = game.from_json(text)
        assert back == state, f"{state!r} comes back from JSON as {back!r}"
        assert game.to_json(back) == text, f"the JSON of {state!r} changes on the way: {text} and {game.to_json(back)}"
        assert hash(back) == hash(state), f"{state!r} and its copy from JSON are equal but their hashes differ"
    for text in ("", "nonsense", "null", "[]", '{"no such field": 1}'):
        try:
            state = game.from_json(text)
        except StateError:
            continue
        raise AssertionError(f"from_json takes {text!r} for the position {state!r}")


def check_restored_episode(game: AnyGame, seeds: Seeds) -> None:
    """An episode restored from JSON goes on exactly as the original."""
    for seed in seeds:
        original: Episode[Any, Any] = Episode(game, seed)
        chooser, other = np.random.default_rng(seed), same_game_again(game)
        for turn in range(TURNS):
            stored = original.snapshot().model_dump_json()
            copy: Episode[Any, Any] = Episode.restore(other, Snapshot.model_validate_json(stored))
            action = choose(game, original.state, chooser)
            if action is None:
                break
            expected, got = (act_and_tell(episode, action) for episode in (original, copy))
            assert_same(expected, got, f"seed {seed}, turn {turn}, from a restored position")


def check_purity(game: AnyGame, seeds: Seeds) -> None:
    """No method changes the position or the configuration, and the order of calls does not matter."""
    for state in positions(game, seeds):
        text, config = game.to_json(state), game.config.model_dump_json()
        methods: list[Callable[[Any], Any]] = [
            game.legal_actions,
            game.ended,
            game.describe,
            game.prompt,
            partial(game.metrics, infos=()),
            partial(digest, game),
            partial(_sampled_steps, game),
        ]
        first = [method(state) for method in methods]
        second = [method(state) for method in reversed(methods)][::-1]
        assert_same(first, second, f"methods called in another order on {text}")
        assert game.to_json(state) == text, f"a method changed the position {text} to {game.to_json(state)}"
        assert game.config.model_dump_json() == config, "a method changed the configuration"


def _sampled_steps(game: AnyGame, state: Any) -> list[str]:
    """Where some legal steps lead."""
    legal = legal_actions(game, state)[:5]
    return [game.to_json(game.step(state, action, np.random.default_rng(0)).state) for action in legal]
