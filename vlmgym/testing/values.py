"""Checks of states as values: JSON round trips, snapshots and purity."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from vlmgym.errors import StateError
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.testing.states import TURNS, AnyGame, Seeds, choose, legal_actions, same_game_again, sample_states
from vlmgym.testing.transcript import act_and_describe, assert_same, digest


def check_json_round_trip(game: AnyGame, seeds: Seeds) -> None:
    """Check that states survive JSON unchanged, and that invalid text raises `StateError`."""
    for state in sample_states(game, seeds):
        text = game.to_json(state)
        assert "\n" not in text, f"the JSON of a state has several lines: {text!r}"
        back = game.from_json(text)
        assert back == state, f"{state!r} becomes {back!r} through JSON"
        assert game.to_json(back) == text, f"the JSON of {state!r} changes from {text} to {game.to_json(back)}"
        assert hash(back) == hash(state), f"{state!r} and its copy from JSON are equal but their hashes differ"
    for text in ("", "nonsense", "null", "[]", '{"no such field": 1}'):
        try:
            state = game.from_json(text)
        except StateError:
            continue
        raise AssertionError(f"from_json reads {text!r} as the state {state!r}")


def check_restored_episode(game: AnyGame, seeds: Seeds) -> None:
    """Check that an episode restored from JSON continues exactly as the original."""
    for seed in seeds:
        original: Episode[Any, Any] = Episode(game, seed)
        chooser, other = np.random.default_rng(seed), same_game_again(game)
        for turn in range(TURNS):
            stored = original.snapshot().model_dump_json()
            copy: Episode[Any, Any] = Episode.restore(other, Snapshot.model_validate_json(stored))
            action = choose(game, original.state, chooser)
            if action is None:
                break
            expected, got = (act_and_describe(episode, action) for episode in (original, copy))
            assert_same(expected, got, f"seed {seed}, turn {turn}, restored from a snapshot")


def check_purity(game: AnyGame, seeds: Seeds) -> None:
    """Check that no method changes the state or the config, and that the order of calls does not matter."""
    for state in sample_states(game, seeds):
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
        assert_same(first, second, f"methods called in a different order on {text}")
        assert game.to_json(state) == text, f"a method changed the state {text} to {game.to_json(state)}"
        assert game.config.model_dump_json() == config, "a method changed the config"


def _sampled_steps(game: AnyGame, state: Any) -> list[str]:
    """Return the state after each of up to five legal actions, as JSON."""
    legal = legal_actions(game, state)[:5]
    return [game.to_json(game.step(state, action, np.random.default_rng(0)).state) for action in legal]
