"""The Gymnasium environment and the response wrapper."""

import json
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from vlmgym import UsageError
from vlmgym.errors import EpisodeEnded
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.response_format import compose
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.envs.single import GameEnv, ResponseWrapper

SMALL: dict[str, Any] = {"size": 128}


def test_make_opens_no_display() -> None:
    code = (
        "import gymnasium\n"
        'env = gymnasium.make("vlmgym:vlmgym/2048-v0", perception=2, reasoning=4, size=96)\n'
        "env.reset(seed=0); env.step(0); env.close()\n"
        "import pygame\n"
        "assert not pygame.display.get_init()\n"
        "print(env.observation_space.shape)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(96, 96, 3)\n"


def test_reset_with_a_seed_starts_that_episode() -> None:
    env = GameEnv("2048", **SMALL)
    episode = Episode(env.game, 7)
    observation, info = env.reset(seed=7)
    assert info["seed"] == 7
    for turn in range(40):
        np.testing.assert_array_equal(observation, env.game.draw(episode.state))
        assert info["description"] == env.game.describe(episode.state)
        action = info["legal_actions"][turn % len(info["legal_actions"])]
        scored = episode.act(action)
        observation, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (scored.total, scored.terminated, False)
        assert (info["score"], info["turn"], info["outcome"]) == (episode.score, turn + 1, "played")
        if terminated:
            break


@pytest.mark.parametrize(("game", "action"), [("2048", "up"), ("2048", 1.0), ("2048", 4), ("swap", (0, 0, 0, 9))])
def test_action_outside_its_space(game: str, action: Any) -> None:
    env = GameEnv(game)
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"an action must be in .*Discrete"):
        env.step(action)
    assert env.episode.turn == 0


def test_an_ended_episode_is_never_reset() -> None:
    env = GameEnv("2048", reasoning=5, **SMALL)
    for use in (lambda: env.step(0), env.snapshot, env.prompt):
        with pytest.raises(UsageError, match="reset"):
            use()
    _, info = env.reset(seed=0)
    terminated = False
    while not terminated:
        _, _, terminated, _, info = env.step(info["legal_actions"][0])
    assert info["end"] == "no move is left"
    assert info["legal_actions"] == ()
    with pytest.raises(EpisodeEnded, match="start another"):
        env.step(0)
    _, info = env.reset()
    assert (info["turn"], info["end"]) == (0, "")


def test_snapshots_continue_and_branches_differ() -> None:
    env = GameEnv("2048", **SMALL)
    env.reset(seed=5)
    for action in (0, 1, 2):
        env.step(action)
    stored = env.snapshot()
    expected = [env.step(action)[4] for action in (1, 0, 3, 2)]
    for form in (stored, stored.model_dump_json(), json.loads(stored.model_dump_json())):
        other = GameEnv("2048", **SMALL)
        _, info = other.reset(options={"snapshot": form})
        assert (info["turn"], info["seed"]) == (3, 5)
        assert [other.step(action)[4] for action in (1, 0, 3, 2)] == expected
    ends = set()
    for seed in range(8):
        _, info = env.reset(seed=seed, options={"snapshot": stored})
        ends.add(env.step(info["legal_actions"][0])[4]["description"])
    assert len(ends) > 1


def test_human_mode_shows_the_same_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    env = GameEnv("2048", render_mode="human", **SMALL)
    env.metadata = {**env.metadata, "render_fps": 1000}
    env.reset(seed=0)
    observation, *_ = env.step(0)
    assert env.render() is None
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    np.testing.assert_array_equal(shown, observation)
    plain = GameEnv("2048", **SMALL)
    plain.reset(seed=0)
    np.testing.assert_array_equal(plain.step(0)[0], observation)
    env.close()
    env.close()
    assert not pygame.display.get_init()
    env.reset(seed=0)  # opens a new window
    assert pygame.display.get_init()
    env.close()


def wrapped(**reward: Any) -> ResponseWrapper:
    env = gymnasium.make("vlmgym/2048-v0", reward=RewardConfig(**reward), max_episode_steps=5, size=128)
    return ResponseWrapper(env)


def test_responses_take_turns_and_prompts_have_feedback() -> None:
    env = wrapped(format_weight=10.0, perception_weight=100.0)
    _, info = env.reset(seed=1)
    game = env.game_env.game
    assert info["prompt"] == game.prompt(env.game_env.episode.state)
    response = game.respond(env.game_env.episode.state, 0)
    _, reward, _, _, info = env.step(response)
    assert info["outcome"] == "played"
    assert reward == pytest.approx(110.0 + info["reward_parts"]["game"])
    _, reward, _, _, info = env.step("up, I think")
    assert (reward, info["outcome"]) == (0.0, "unparsable")
    assert "action" not in info
    assert info["feedback"] in info["prompt"]
    assert env.step(compose("", "", "17"))[4]["outcome"] == "illegal"
    for _ in range(2):
        truncated = env.step("")[3]
    assert truncated
    with pytest.raises(UsageError, match="needs a vlmgym environment"):
        ResponseWrapper(gymnasium.make("CartPole-v1"))
