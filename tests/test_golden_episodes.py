"""Golden episodes: the same seed and actions give the same states, images, rewards and words, release after release.

For an intended change, raise the game's `version` and regenerate the file: `python -m tests.test_golden_episodes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from vlmgym import game_ids, make_game
from vlmgym.sandbox.core.episode import Episode

GOLDEN = Path(__file__).with_name("golden_episodes.json")
"""Hashes by game id, level of both difficulties, and kind of data."""
LEVELS = (1, 3, 5)
TURNS = 40
ILLEGAL_EVERY = 7
"""Every seventh action is a random, mostly illegal one."""
IMAGE_EVERY = 10
SIZE = 160


def digest(lines: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(str, lines)).encode()).hexdigest()[:16]


def play(game_id: str, level: int) -> dict[str, str]:
    """Hash an episode of seed 0 whose actions depend on the turn alone."""
    game = make_game(game_id, level, level, size=SIZE)
    episode = Episode(game, 0)
    states, images, turns, words = [], [], [], []
    for turn in range(TURNS):
        states.append(game.to_json(episode.state))
        words.append(game.prompt(episode.state))
        if turn % IMAGE_EVERY == 0:
            images += [hashlib.sha256(image.tobytes()).hexdigest() for image in game.images(episode.state)]
        if episode.ended is not None:
            break
        legal = game.legal_actions(episode.state) or [game.best_action(episode.state)]
        drawn = turn % ILLEGAL_EVERY == ILLEGAL_EVERY - 1
        action = game.random_action(np.random.default_rng(turn)) if drawn else legal[turn * turn % len(legal)]
        scored = episode.act(action)
        turns.append((action, scored.game, scored.outcome.value, json.dumps(dict(scored.info))))
        words.append(scored.feedback)
    return {"states": digest(states), "images": digest(images), "turns": digest(turns), "words": digest(words)}


def known_episodes() -> dict[str, dict[str, dict[str, str]]]:
    known: dict[str, dict[str, dict[str, str]]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return known


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("game_id", game_ids())
def test_an_episode_is_unchanged(game_id: str, level: int) -> None:
    assert play(game_id, level) == known_episodes()[game_id][str(level)]


if __name__ == "__main__":
    episodes = {game_id: {str(level): play(game_id, level) for level in LEVELS} for game_id in game_ids()}
    GOLDEN.write_text(json.dumps(episodes, indent=1) + "\n", encoding="utf-8")
