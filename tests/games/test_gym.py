"""Gymnasium environments, played as games, behave as in Gymnasium."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

import vlmgym
from tests.games.probe import TOY_TEXT, play
from vlmgym import make_game
from vlmgym.errors import EpisodeEnded, ParseError, UsageError
from vlmgym.runs.record import GameRecord
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import score_action
from vlmgym.sandbox.games.gym.envs import Words
from vlmgym.testing import GAME_CHECKS, check_name, run_check


@pytest.mark.parametrize("check", GAME_CHECKS, ids=check_name)
def test_conformance(check: Any) -> None:
    run_check(check, make_game("gym:FrozenLake-v1", size=96), (0,))


def test_environments_with_numbers_as_states_restore_and_respond() -> None:
    game = make_game("gym:CartPole-v1", size=64, frames=2, frame_skip=2)
    for check in GAME_CHECKS:
        if check_name(check) in ("restored_episode", "responses", "image_and_description", "format_and_parse"):
            run_check(check, game, (0,))


@pytest.mark.parametrize(("env_id", "options"), [("FrozenLake-v1", {"map_name": "8x8"}), ("MountainCar-v0", {})])
def test_play_matches_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    game = make_game(f"gym:{env_id}", options=[f"{name}={value}" for name, value in options.items()], frame_skip=3)
    env = gymnasium.make(env_id, **options)
    env.reset(seed=7)
    episode, chooser = Episode(game, 7), np.random.default_rng(0)
    while episode.ended is None:
        action, total = game.answer.sample(chooser), 0.0
        for _ in range(3):
            _, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        assert episode.act(action).game == total
        assert episode.ended == ("terminated" if terminated else "truncated" if truncated else None)


def test_time_limits_truncate() -> None:
    game = make_game("gym:ShortProbe-v3", size=64)
    assert [end for _, _, end in play(game, 0, [0] * 5)] == [None] * 4 + ["truncated"]
    end = game.from_json('{"seed": 0, "actions": "00000", "end": "truncated"}')
    with pytest.raises(EpisodeEnded, match="truncated"):
        score_action(game, end, 0, np.random.default_rng(0))


def test_box_and_multidiscrete_actions() -> None:
    box = make_game("gym:Probe-v0", options="kind=box", box_values=3, size=64)
    assert box.answer.parse("-1.0, +1") == (0, 2)
    assert box.answer.format((1, 2)) == "0, 1"
    state = box.start_at(0, np.random.default_rng(0))
    for action in ((0, 0), (2, 1)):
        box.step(state, action, np.random.default_rng(0))
    named = make_game("gym:Probe-v0", options="kind=multi", actions="no,yes;low,mid,high", size=64)
    assert named.answer.parse("Yes, MID.") == (1, 1)
    assert "no, yes; low, mid, high" in named.prompt(named.start_at(0, np.random.default_rng(0)))
    for wrong in ("yes", "yes, mid, low", "maybe, mid", "yes mid", "1, 1"):
        with pytest.raises(ParseError):
            named.answer.parse(wrong)


@pytest.mark.parametrize(
    ("game_id", "config", "message"),
    [
        ("gym:FrozenLak-v1", {}, "Did you mean: `FrozenLake`"),
        ("gym:CartPole", {}, "no version: choose CartPole-v0 or CartPole-v1"),
        ("gym:this:FrozenLake-v1", {}, "names a module to import, which vlmgym does not do"),
        ("gym:", {}, "ends without a name"),
        ("gym:../../etc/passwd-v0", {}, "Gymnasium has no environment"),
        ("gym:phys2d/CartPole-v1", {}, "cannot be made: ModuleNotFoundError: No module named 'jax'"),
        ("gym:FrozenLake-v1", {"options": "map_name=9x9"}, "cannot be made: KeyError"),
        ("gym:FrozenLake-v1", {"options": "render_mode=human"}, "options cannot set render_mode"),
        ("gym:FrozenLake-v1", {"env": "Taxi-v4"}, "env is set by the id"),
        ("gym:FrozenLake-v1", {"actions": "a,b"}, "has 4 actions, but the names given are a, b"),
        ("gym:FrozenLake-v1", {"actions": "a,b,c,A"}, "names of actions must differ"),
        ("gym:FrozenLake-v1", {"reasoning": 4}, "no reasoning levels"),
        ("gym:Probe-v0", {"options": "flaw=mode"}, "no rgb_array rendering"),
        ("gym:Probe-v0", {"options": "kind=wide box"}, "has 1,953,125 actions; at most 4,096"),
        ("gym:Probe-v0", {"options": "kind=unbounded box"}, "only Discrete, MultiDiscrete and bounded"),
        ("gym:Probe-v0", {"options": "kind=dict"}, "only Discrete, MultiDiscrete and bounded"),
    ],
)
def test_unsupported_environments_are_named_in_one_line(game_id: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_game(game_id, **config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "this" not in sys.modules


def test_missing_packages_are_named() -> None:
    if "minigrid" in sys.modules:
        pytest.skip("minigrid is installed")
    with pytest.raises(UsageError, match=r"package minigrid .*environment of its own"):
        make_game("gym:MiniGrid-Empty-8x8-v0")


def test_frames_that_are_not_images_are_refused() -> None:
    game = make_game("gym:Probe-v0", options="flaw=frame")
    with pytest.raises(UsageError, match="renders str, expected a uint8 array"):
        game.images(game.start_at(0, np.random.default_rng(0)))


COSTS = ["MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1", *TOY_TEXT]


@pytest.mark.parametrize("env_id", COSTS)
def test_invalid_answers_do_not_pay(env_id: str) -> None:
    game = make_game(f"gym:{env_id}", size=64, frame_skip=2)
    rng = np.random.default_rng(0)
    for seed in range(5):
        invalid, random = Episode(game, seed), Episode(game, seed)
        while random.ended is None and random.turn < 20:
            random.act(game.answer.sample(rng))
            invalid.respond("?")
        assert invalid.score <= random.score


def test_invalid_answers_play_the_noop_of_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmgym.sandbox.games.gym.game.find_words", lambda _: (None, Words(noop=1)))
    game = make_game("gym:Probe-v0", size=64)
    episodes = [vlmgym.Episode(game, 3) for _ in range(2)]
    scored = [episode.respond(answer) for episode, answer in zip(episodes, ("?", "<answer>0</answer>"))]
    assert scored[0].game == scored[1].game > 0
    assert scored[0].next_state == scored[1].next_state
    assert "not changed" not in episodes[0].prompt
    assert make_game("gym:Probe-v0", size=64, invalid=-2.0).illegal_reward == -2.0


def test_records_name_the_environment() -> None:
    game = make_game("gym:CartPole-v1", options="sutton_barto_reward=true", size=64)
    record = GameRecord.of(make_game("gym:CartPole-v1", options="sutton_barto_reward=true", size=64, running=3))
    assert record.id == "gym:CartPole-v1"
    assert record.game().fingerprint == game.fingerprint
    assert make_game("gym:Unversioned", size=64).name == "gym:Unversioned"
    assert record.game() == game
    with pytest.raises(UsageError, match=r"configuration of gym:Taxi-v4: it is a configuration of gym:CartPole-v1"):
        record.model_copy(update={"id": "gym:Taxi-v4"}).game()


def test_evaluation_writes_files_with_plain_names(run: Any, tmp_path: Any) -> None:
    options = ["--episodes", "2", "--max-turns", "3", "--size", "64", "--workers", "0", "--videos", "1"]
    done = run("eval", "gym:phys/../x-v0", *options, "--output-dir", tmp_path / "no")
    assert done.code == 2
    done = run("eval", "gym:FrozenLake-v1", "--policy", "random", *options, "--output-dir", tmp_path / "run")
    assert done.code == 0, done.err
    assert (tmp_path / "run" / "curves_gym_FrozenLake.png").exists()
    assert (tmp_path / "run" / "videos" / "gym_FrozenLake_0.mp4").exists()
    again = run("eval", "--policy", "replay", "--record", tmp_path / "run", "gym:FrozenLake-v1", *options)
    assert again.code == 0, again.err


def test_vectors_and_datasets_take_environments() -> None:
    envs = vlmgym.make_vec("gym:CartPole-v1", 3, 1, size=64)
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (3, 64, 64, 3)
    assert envs.step(np.array([0, 1, 0]))[1].tolist() == [1.0] * 3
    envs.close()
    rows = vlmgym.make_dataset("gym:FrozenLake-v1", 2, size=64)
    assert [vlmgym.score(row["snapshot"], "<answer>left</answer>").outcome.value for row in rows] == ["played"] * 2
