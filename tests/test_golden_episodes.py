"""Golden episodes: the same seed and actions give the same states, images, rewards and words in every release.

For an intended change, raise the game's `version` and regenerate its file:
`python -m tests.test_golden_episodes GAME_ID`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from vlmgym import game_ids, make_game
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.registry import game_class

GOLDEN = Path(__file__).with_name("golden")
"""Folder with one file per game id: hashes by level (of both difficulties) and by kind of data."""
LEVELS = (1, 3, 5)
TURNS = 40
ILLEGAL_EVERY = 7
"""Every seventh action is a random, mostly illegal one."""
IMAGE_EVERY = 10
SIZE = 160


def digest(lines: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(str, lines)).encode()).hexdigest()[:16]


def play(game_id: str, level: int) -> dict[str, str]:
    """Hash an episode with seed 0 whose actions depend only on the turn and the state."""
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
        action = game.answer.sample(np.random.default_rng(turn)) if drawn else legal[turn * turn % len(legal)]
        scored = episode.act(action)
        turns.append((action, scored.game, scored.outcome.value, json.dumps(dict(scored.info))))
        words.append(scored.feedback)
    return {"states": digest(states), "images": digest(images), "turns": digest(turns), "words": digest(words)}


def dark_images(game_id: str) -> dict[str, str]:
    """Hash the first image of seed 0 in two sizes, with the dark theme and coordinates; board games only."""
    found = hashlib.sha256()
    for size in (320, 1024):
        game = make_game(game_id, size=size, theme="dark", coordinates=True, origin=1)
        found.update(game.images(game.start(np.random.default_rng(0)))[0].tobytes())
    return {"images": found.hexdigest()[:16]}


def play_all(game_id: str) -> dict[str, dict[str, str]]:
    played = {str(level): play(game_id, level) for level in LEVELS}
    return {**played, "dark": dark_images(game_id)} if issubclass(game_class(game_id), BoardGame) else played


@pytest.mark.parametrize("game_id", game_ids())
def test_an_episode_is_unchanged(game_id: str) -> None:
    assert play_all(game_id) == json.loads((GOLDEN / f"{game_id}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    for name in sys.argv[1:] or game_ids():
        (GOLDEN / f"{name}.json").write_text(json.dumps(play_all(name), indent=1) + "\n", encoding="utf-8")
