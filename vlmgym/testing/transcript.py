"""All that an episode shows, to compare episodes by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from vlmgym.sandbox.core.episode import Episode
from vlmgym.testing.positions import TURNS, AnyGame, Seeds, choose, legal_actions


def transcript(game: AnyGame, seed: int, turns: int = TURNS) -> list[dict[str, Any]]:
    """What an episode of random play shows in each turn, legal or not: everything that a seed decides."""
    chooser = np.random.default_rng([seed, 1])
    episode: Episode[Any, Any] = Episode(game, seed)
    shown = [_facts(game, episode.state)]
    infos: list[Mapping[str, Any]] = []
    for turn in range(turns):
        if episode.ended is not None:
            break
        action = game.random_action(chooser) if turn % 3 == 2 else choose(game, episode.state, chooser)
        shown.append(act_and_tell(episode, action))
        infos.append(json.loads(shown[-1]["info"]))
        shown[-1]["metrics"] = dict(game.metrics(episode.state, infos))
    return shown


def transcripts(game: type[AnyGame], config: str, seeds: Seeds) -> list[list[dict[str, Any]]]:
    """Transcripts in another process; the configuration comes as JSON, as it does from a record."""
    made = game(game.Config.model_validate_json(config))
    return [transcript(made, seed) for seed in seeds]


def act_and_tell(episode: Episode[Any, Any], action: Any) -> dict[str, Any]:
    """Play an action, and tell all that came of it."""
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
    """The images of a position as hashes."""
    return tuple(
        hashlib.sha256(repr((p.shape, p.dtype)).encode() + p.tobytes()).hexdigest() for p in game.images(state)
    )


def assert_same(expected: Any, got: Any, where: str) -> None:
    """Assert that two nested values are equal, naming the first part that differs."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in expected:
            assert_same(expected[key], got.get(key), f"{where}, {key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (one, other) in enumerate(zip(expected, got)):
            assert_same(one, other, f"{where}, {index}")
    else:
        assert expected == got, f"{where}: {expected!r} and {got!r} differ"
