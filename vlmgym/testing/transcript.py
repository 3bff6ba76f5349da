"""Transcripts of episodes, for comparison."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from vlmgym.sandbox.core.episode import Episode
from vlmgym.testing.states import TURNS, AnyGame, Seeds, choose, legal_actions


def transcript(game: AnyGame, seed: int) -> list[dict[str, Any]]:
    """Play random actions, legal and illegal, and return everything that the seed determines."""
    chooser = np.random.default_rng([seed, 1])
    episode: Episode[Any, Any] = Episode(game, seed)
    shown = [_facts(game, episode.state)]
    infos: list[Mapping[str, Any]] = []
    for turn in range(TURNS):
        if episode.ended is not None:
            break
        action = game.random_action(chooser) if turn % 3 == 2 else choose(game, episode.state, chooser)
        shown.append(act_and_describe(episode, action))
        infos.append(json.loads(shown[-1]["info"]))
        shown[-1]["metrics"] = dict(game.metrics(episode.state, infos))
    return shown


def transcripts(game: type[AnyGame], config: str, seeds: Seeds) -> list[list[dict[str, Any]]]:
    """Return the transcripts of several seeds; called in another process, with the config as JSON."""
    made = game(game.Config.model_validate_json(config))
    return [transcript(made, seed) for seed in seeds]


def act_and_describe(episode: Episode[Any, Any], action: Any) -> dict[str, Any]:
    """Play an action and describe all its effects."""
    scored = episode.act(action)
    return {
        "action": repr(action),
        "reward": scored.total,
        "outcome": scored.outcome.value,
        "feedback": scored.feedback,
        "terminated": scored.terminated,
        "info": json.dumps(dict(scored.info)),
        "generator": repr(episode.rng.bit_generator.state),
        **_facts(episode.game, episode.state),
    }


def _facts(game: AnyGame, state: Any) -> dict[str, Any]:
    return {
        "state": game.to_json(state),
        "legal actions": repr(legal_actions(game, state)),
        "end": game.ended(state),
        "description": game.describe(state),
        "prompt": game.prompt(state),
        "pixels": digest(game, state),
    }


def digest(game: AnyGame, state: Any) -> tuple[str, ...]:
    """Hash the images of a state."""
    return tuple(
        hashlib.sha256(repr((p.shape, p.dtype)).encode() + p.tobytes()).hexdigest() for p in game.images(state)
    )


def assert_same(expected: Any, got: Any, where: str) -> None:
    """Assert that two nested values are equal, naming the first difference; a missing key counts as None."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in {**expected, **got}:
            assert_same(expected.get(key), got.get(key), f"{where}, {key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (one, other) in enumerate(zip(expected, got)):
            assert_same(one, other, f"{where}, {index}")
    else:
        assert expected == got, f"{where}: {expected!r} differs from {got!r}"
