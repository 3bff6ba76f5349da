"""What a seed decides is the same for ever: a change of NumPy's streams, of rules or of prompts is noticed here.

If a change is meant, raise the game's `version` together with its hashes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
import pytest

from vlmgym import game_ids, make_game
from vlmgym.sandbox.episode import Episode

TURNS = 40
ILLEGAL_EVERY = 7
"""Every so many turns, the action is one that a generator draws from the whole space, which is mostly illegal."""

GOLDEN = {
    "2048-v0": {"states": "5b19b11a0ab9d10c", "prompts": "3c8664df2ed1d3c3", "turns": "cbc81419b70b8e71"},
    "caption-v0": {"states": "6b702bde87c3869f", "prompts": "287660f5b1104c67", "turns": "df0142376100cf80"},
    "geospot-v0": {"states": "a54d3ab849b7e894", "prompts": "fda99b6be12ad4b9", "turns": "18a978e44dea7d10"},
    "nlvr2-v0": {"states": "7cabf13e13bfcded", "prompts": "d034252d58620313", "turns": "a5db31afd42b0ffb"},
    "shisensho-v0": {"states": "a11d608aaf833039", "prompts": "0339ffdff7eb15e6", "turns": "492024d8134b2acd"},
    "swap-v0": {"states": "c3c863dfe4dad2d7", "prompts": "67c766928f804159", "turns": "eaaf07a3e2dd581c"},
    "vqa-v0": {"states": "c0a23f7c7eff1a6d", "prompts": "976794ec600366b1", "turns": "ab0ee71d5c786cde"},
}
"""Hashes by the game's id: its positions, its prompts, and its actions, rewards, outcomes, feedback and facts."""


def digest(lines: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(str, lines)).encode()).hexdigest()[:16]


def play(game_id: str) -> dict[str, str]:
    """Hashes of what an episode of seed 0 shows: actions are chosen by the number of the turn, not by chance."""
    game = make_game(game_id)
    episode = Episode(game, 0)
    states, prompts, turns = [game.to_json(episode.state)], [game.prompt(episode.state)], []
    for turn in range(TURNS):
        if episode.ended is not None:
            break
        legal = game.legal_actions(episode.state) or [game.best_action(episode.state)]
        drawn = turn % ILLEGAL_EVERY == ILLEGAL_EVERY - 1
        action = game.random_action(np.random.default_rng(turn)) if drawn else legal[turn * turn % len(legal)]
        scored = episode.act(action)
        states.append(game.to_json(episode.state))
        prompts.append(game.prompt(episode.state))
        turns.append((action, scored.game, scored.outcome.value, scored.feedback, json.dumps(dict(scored.info))))
    return {"states": digest(states), "prompts": digest(prompts), "turns": digest(turns)}


@pytest.mark.parametrize("game_id", game_ids())
def test_an_episode_of_a_seed_is_what_it_was(game_id: str) -> None:
    assert play(game_id) == GOLDEN[game_id]
