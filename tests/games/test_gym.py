"""Gymnasium environments, played as games: rules as in Gymnasium, restorable states, and commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vlmgym
from tests.games.probe import Probe, play
from vlmgym import make_game
from vlmgym.errors import EpisodeEnded, ParseError, StateError, UsageError
from vlmgym.evaluation import evaluate, read_run
from vlmgym.rollout.states import sample_state
from vlmgym.runs.record import GameRecord, recorded_states
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import score_action
from vlmgym.sandbox.games.gym.envs import Words
from vlmgym.testing import GAME_CHECKS, check_name, run_check


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
        ("gym:phys2d/CartPole-v1", {}, "cannot be made: ModuleNotFoundError: No module named 'jax'"),
        ("gym:FrozenLake-v1", {"actions": "a,b"}, "has 4 actions, but the names given are a, b"),
        ("gym:Probe-v0", {"options": "kind=wide box"}, "has 1,953,125 actions; at most 4,096"),
        ("gym:Probe-v0", {"options": "kind=unbounded box"}, "only Discrete, MultiDiscrete and bounded"),
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


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "Pendulum-v1", "Blackjack-v1"])
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


def test_vectors_and_datasets_take_environments() -> None:
    envs = vlmgym.make_vec("gym:CartPole-v1", 3, 1, size=64)
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (3, 64, 64, 3)
    assert envs.step(np.array([0, 1, 0]))[1].tolist() == [1.0] * 3
    envs.close()
    rows = vlmgym.make_dataset("gym:FrozenLake-v1", 2, size=64)
    assert [vlmgym.score(row["snapshot"], "<answer>left</answer>").outcome.value for row in rows] == ["played"] * 2


OTHERS = ["MiniGrid-DoorKey-5x5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0", "BabyAI-GoToRedBall-v0", "ALE/Breakout-v5"]
QUICK = ("restored_episode", "responses", "image_and_description", "format_and_parse")


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CartPole-v1", *OTHERS])
def test_environments_keep_the_contract_of_games(env_id: str) -> None:
    if env_id in OTHERS:
        pytest.importorskip("ale_py" if env_id.startswith("ALE") else "minigrid")
    frames = {"frames": 2, "frame_skip": 2} if env_id == "CartPole-v1" else {}
    game = make_game(f"gym:{env_id}", size=64, **frames)
    for check in GAME_CHECKS:
        if env_id == "FrozenLake-v1" or check_name(check) in QUICK:
            run_check(check, game, (0,))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 1)), max_size=60), st.integers(1, 3), st.integers(1, 3))
def test_interleaved_episodes_are_independent(moves: list[tuple[int, int]], running: int, frames: int) -> None:
    # Episodes 0 and 1 have the same seed, and fewer environments run than there are episodes.
    game = make_game("gym:Probe-v0", size=64, running=running, frames=frames, sticky=0.3)
    episodes = [Episode(game, seed) for seed in (5, 5, 6, 7)]
    played: list[list[int]] = [[], [], [], []]
    for which, action in moves:
        if episodes[which].ended is None:
            episodes[which].act(action)
            played[which].append(action)
            if len(played[which]) % 4 == 0:
                episodes[which] = Episode.restore(game, episodes[which].snapshot())
    for episode, seed, actions in zip(episodes, (5, 5, 6, 7), played):
        alone = Episode(make_game("gym:Probe-v0", size=64, frames=frames, sticky=0.3), seed)
        for action in actions:
            alone.act(action)
        assert (alone.state, alone.score) == (episode.state, episode.score)
        for one, other in zip(game.images(episode.state), alone.game.images(alone.state)):
            assert np.array_equal(one, other)


def test_play_takes_one_step_per_action() -> None:
    game = make_game("gym:Probe-v0", size=64)
    game.check_restorable()
    Probe.steps = 0
    episode = Episode(game, 1)
    states = [episode.state]
    for _ in range(20):
        episode.act(0)
        states.append(episode.state)
        assert game.images(states[-1])
        assert game.images(states[0])
    assert Probe.steps == 20
    assert [game.from_data(game.to_data(state)) for state in states] == states
    assert Probe.steps <= 40


def test_states_of_random_environments_are_refused() -> None:
    game = make_game("gym:Probe-v0", options="flaw=random", size=64)
    episode = Episode(game, 0)
    episode.act(0)
    for refused in (lambda: Episode.restore(game, episode.snapshot()), lambda: sample_state(game, 0, 0)):
        with pytest.raises(StateError, match=r"Probe-v0 is not deterministic: .* or used for training"):
            refused()


@pytest.mark.parametrize(
    "change",
    [{"seed": -1}, {"actions": "09"}, {"actions": "0" * 40}, {"end": "terminated"}],
)
def test_states_that_the_environment_does_not_reach_are_refused(change: dict[str, Any]) -> None:
    game = make_game("gym:Probe-v0", size=64)
    with pytest.raises(StateError, match=r"state of gym:Probe|ends after 25 of 40 actions"):
        game.from_json(json.dumps({"seed": 0, "actions": "0", "end": None, **change}))


def test_records_of_long_episodes_do_not_repeat_the_actions() -> None:
    game = make_game("gym:Endless-v0", size=64)
    (record,) = evaluate(game, "random", 1, max_turns=300, workers=0)
    sizes = [len(turn.model_dump_json()) for turn in record.turns]
    assert max(sizes[-50:]) <= max(sizes[:50]) + 8
    states = recorded_states(game, record)
    assert [len(str(state.actions)) for state in states] == list(range(301))
    assert game.to_data(states[-1]) == record.final_state
    turns = [turn.model_copy(update={"action": 0} if turn.turn == 7 else {}) for turn in record.turns]
    with pytest.raises(UsageError, match=r"^turn 8: .*earlier turns"):
        recorded_states(game, record.model_copy(update={"turns": turns}))


SMALL = ["--size", "96", "--workers", "0"]
Run = Callable[..., Any]


def test_runs_of_environments_are_verified_rescored_reported_and_resumed(run: Run, tmp_path: Path) -> None:
    folder, again = tmp_path / "run", tmp_path / "again"
    options = ["eval", "gym:FrozenLake-v1", "--policy", "random", "--episodes", "2", "--max-turns", "5", *SMALL]
    assert run("eval", "gym:phys/../x-v0", *options[2:], "--output-dir", folder).code == 2
    assert run(*options, "--videos", "1", "--output-dir", folder).code == 0
    assert (folder / "curves_gym_FrozenLake.png").exists()
    assert (folder / "videos" / "gym_FrozenLake_0.mp4").exists()
    first = read_run(folder)
    assert run("verify", folder, "--workers", "0").code == 0
    assert run("rescore", folder, "--output-dir", again).code == 0
    assert [one.score for one in read_run(again).episodes] == [one.score for one in first.episodes]
    assert run("report", folder, "--workers", "0").code == 0
    records = folder / "episodes.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text(lines[0])
    resumed = run(*options, "--videos", "0", "--no-report", "--resume", folder)
    assert resumed.code == 0, resumed.err
    assert [one.score for one in read_run(folder).episodes] == [one.score for one in first.episodes]
    changed = json.loads(lines[0])
    changed["score"] += 1
    records.write_text("".join([json.dumps(changed) + "\n", *lines[1:]]))
    assert run("verify", folder, "--workers", "0").code == 1
