"""Gymnasium environments from other packages, if installed."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from tests.games.probe import play
from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.episode import Episode
from vlmgym.testing import GAME_CHECKS, check_name, run_check

OTHERS = ["MiniGrid-DoorKey-5x5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0", "BabyAI-GoToRedBall-v0", "ALE/Breakout-v5"]


@pytest.mark.parametrize("env_id", OTHERS)
def test_environments_of_other_packages(env_id: str) -> None:
    pytest.importorskip("ale_py" if env_id.startswith("ALE") else "minigrid")
    game = make_game(f"gym:{env_id}", size=64)
    for check in GAME_CHECKS:
        if check_name(check) in ("restored_episode", "responses", "image_and_description", "format_and_parse"):
            run_check(check, game, (0,))


@pytest.mark.filterwarnings("ignore:.*out of date")
def test_every_minigrid_can_be_played() -> None:
    pytest.importorskip("minigrid")
    make_game("gym:MiniGrid-Empty-5x5-v0")
    failed = {}
    for env_id in gymnasium.registry:
        if env_id.startswith(("MiniGrid-", "BabyAI-")) and "WFC" not in env_id:  # needs another package
            try:
                make_game(f"gym:{env_id}", size=64)
            except UsageError as error:
                failed[env_id] = error
    assert not failed


@pytest.mark.parametrize("options", ["repeat_action_probability=0.0", "repeat_action_probability=0.25"])
def test_atari_games_continue_from_their_own_copies(options: str) -> None:
    pytest.importorskip("ale_py")
    config: Any = {"size": 64, "options": options}
    game, actions = make_game("gym:ALE/Pong-v5", running=1, **config), [2, 3, 3, 0, 2, 1, 3, 2] * 2
    episodes = [Episode(game, seed) for seed in (1, 2, 1)]
    moves = [(action, (action + index) % 6, action) for index, action in enumerate(actions)]
    scores = [[episode.act(action).game for episode, action in zip(episodes, each)] for each in moves]
    Episode(game, 3).act(0)
    alone = play(make_game("gym:ALE/Pong-v5", **config), 1, actions)
    for index in (0, 2):
        assert [each[index] for each in scores] == [reward for reward, _, _ in alone]
        assert game.images(episodes[index].state)[-1].tobytes() == alone[-1][1]


def test_atari_games_do_not_wait_for_valid_answers() -> None:
    pytest.importorskip("ale_py")
    game = make_game("gym:ALE/Pong-v5", size=64)
    episode = Episode(game, 0)
    for _ in range(200):
        episode.respond("?")
    assert episode.score < 0
