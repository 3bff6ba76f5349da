"""Gymnasium environments as games: the same play as in Gymnasium, from any state and in any order."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import vlmgym
from vlmgym import make_game
from vlmgym.errors import IllegalAction, ParseError, StateError, UsageError
from vlmgym.records.episode import GameRecord
from vlmgym.rollout.states import sample_state
from vlmgym.sandbox.core.episode import Episode
from vlmgym.testing import GAME_CHECKS, check_name, run_check
from vlmgym.testing.transcript import transcript

TOY_TEXT = [
    max(env_id for env_id in gymnasium.registry if env_id.startswith(f"{name}-v"))
    for name in ("CliffWalking", "Taxi", "Blackjack")
]
"""Newest versions."""


class Probe(gymnasium.Env[Any, Any]):
    """A counter with a chosen action space, rendering, randomness and time limit."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as in Env
    steps: ClassVar[int] = 0
    observation_space = spaces.Discrete(1000)

    def __init__(self, render_mode: str, kind: str = "discrete", flaw: str = "") -> None:
        self.render_mode, self.flaw = render_mode, flaw
        self.action_space = {
            "discrete": spaces.Discrete(3, start=-1),
            "multi": spaces.MultiDiscrete([2, 3]),
            "box": spaces.Box(-1, 1, (2,)),
            "wide box": spaces.Box(-1, 1, (9,)),
            "unbounded box": spaces.Box(-np.inf, 1, (1,)),
            "dict": spaces.Dict({"a": spaces.Discrete(2)}),
        }[kind]
        if flaw == "mode":
            self.metadata = {"render_modes": ["ansi"]}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.shade = int(self.np_random.integers(256))
        self.played: list[Any] = []
        return self.shade, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        Probe.steps += 1
        assert self.action_space.contains(action), action
        rng = np.random.default_rng() if self.flaw == "random" else self.np_random
        self.shade = int(rng.integers(256))
        self.played.append(np.asarray(action).tolist())
        return self.shade, self.shade / 10, len(self.played) == 25, False, {"array": np.zeros(3), "played": "x"}

    def render(self) -> Any:
        return "text" if self.flaw == "frame" else np.full((4, 6, 3), self.shade, np.uint8)


gymnasium.register("Probe-v0", entry_point=cast(Any, Probe), max_episode_steps=30)
gymnasium.register("ShortProbe-v3", entry_point=cast(Any, Probe), max_episode_steps=5)


def play(game: vlmgym.Game[Any, Any], seed: int, actions: list[int]) -> list[Any]:
    episode = Episode(game, seed)
    return [(episode.act(action).game, game.images(episode.state)[-1].tobytes(), episode.ended) for action in actions]


@pytest.mark.parametrize("check", GAME_CHECKS, ids=check_name)
def test_conformance(check: Any) -> None:
    run_check(check, make_game("gym:FrozenLake-v1", size=96), (0,))


@pytest.mark.parametrize("env_id", [*TOY_TEXT, "CartPole-v1"])
def test_other_environments_restore_and_respond(env_id: str) -> None:
    game = make_game(f"gym:{env_id}", size=64, frames=2)
    for check in GAME_CHECKS:
        if check_name(check) in ("restored_episode", "responses", "image_and_description", "format_and_parse"):
            run_check(check, game, (0,))


@pytest.mark.parametrize(("env_id", "options"), [("FrozenLake-v1", {"map_name": "8x8"}), ("MountainCar-v0", {})])
def test_play_is_that_of_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    game = make_game(f"gym:{env_id}", options=[f"{name}={value}" for name, value in options.items()], frame_skip=3)
    env = gymnasium.make(env_id, **options)
    env.reset(seed=7)
    episode, chooser = Episode(game, 7), np.random.default_rng(0)
    while episode.ended is None:
        action, total = game.random_action(chooser), 0.0
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
    end = game.from_json('{"seed": 0, "actions": [0, 0, 0, 0, 0], "end": "truncated"}')
    with pytest.raises(IllegalAction, match="truncated the episode"):
        game.step(end, 0, np.random.default_rng(0))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 1)), max_size=60), st.integers(1, 3), st.integers(1, 3))
def test_interleaved_episodes_are_independent(moves: list[tuple[int, int]], running: int, frames: int) -> None:
    # Episodes 0 and 1 have the same seed; fewer environments run than there are episodes.
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


def test_threads_share_a_game() -> None:
    game = make_game("gym:FrozenLake-v1", size=64, running=3)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: transcript(game, seed), range(8)))
    assert together == [transcript(make_game("gym:FrozenLake-v1", size=64), seed) for seed in range(8)]


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


def test_box_and_multidiscrete_actions() -> None:
    box = make_game("gym:Probe-v0", options="kind=box", box_values=3, size=64)
    assert box.parse("<answer>-1.0, +1</answer>") == (0, 2)
    assert box.format((1, 2)) == "0, 1"
    state = box.start_at(0, np.random.default_rng(0))
    for action in ((0, 0), (2, 1)):
        box.step(state, action, np.random.default_rng(0))
    named = make_game("gym:Probe-v0", options="kind=multi", actions="no,yes;low,mid,high", size=64)
    assert named.parse("<answer>Yes, MID.</answer>") == (1, 1)
    assert "no, yes; low, mid, high" in named.prompt(named.start_at(0, np.random.default_rng(0)))
    for wrong in ("yes", "yes, mid, low", "maybe, mid", "yes mid", "1, 1"):
        with pytest.raises(ParseError):
            named.parse(f"<answer>{wrong}</answer>")


@pytest.mark.parametrize(
    ("game_id", "config", "message"),
    [
        ("gym:FrozenLak-v1", {}, "Did you mean: `FrozenLake`"),
        ("gym:CartPole", {}, "no version: choose CartPole-v0 or CartPole-v1"),
        ("gym:this:FrozenLake-v1", {}, "names a module to import, which vlmgym does not do"),
        ("gym:", {}, "Gymnasium has no environment ''"),
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
def test_what_cannot_be_played_is_refused_in_one_sentence(game_id: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_game(game_id, **config)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "this" not in sys.modules


def test_missing_packages_are_named() -> None:
    if "minigrid" in sys.modules:
        pytest.skip("minigrid is installed")
    with pytest.raises(UsageError, match=r"needs the package minigrid .*in an environment of its own"):
        make_game("gym:MiniGrid-Empty-8x8-v0")


def test_frames_that_are_not_images_are_refused() -> None:
    game = make_game("gym:Probe-v0", options="flaw=frame")
    with pytest.raises(UsageError, match="renders str, expected a uint8 array"):
        game.images(game.start_at(0, np.random.default_rng(0)))


def test_states_of_random_environments_are_refused() -> None:
    game = make_game("gym:Probe-v0", options="flaw=random", size=64)
    episode = Episode(game, 0)
    episode.act(0)
    for refused in (lambda: Episode.restore(game, episode.snapshot()), lambda: sample_state(game, 0, 0)):
        with pytest.raises(StateError, match=r"Probe-v0 is not deterministic: .* nor trained on"):
            refused()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": -1},
        {"actions": [0, 9]},
        {"actions": [True]},
        {"actions": [0] * 40},
        {"end": "terminated"},
        {"end": "x"},
    ],
)
def test_states_that_the_environment_does_not_reach_are_refused(change: dict[str, Any]) -> None:
    game = make_game("gym:Probe-v0", size=64)
    with pytest.raises(StateError, match=r"state of gym:Probe|ends after 25 of 40 actions"):
        game.from_json(json.dumps({"seed": 0, "actions": [0], "end": None, **change}))


def test_environments_of_refused_states_are_used_again() -> None:
    game = make_game("gym:Probe-v0", size=64, running=1)
    for _ in range(3):
        with pytest.raises(StateError, match="ends after 25 of 40 actions"):
            game.from_json(json.dumps({"seed": 0, "actions": [0] * 40, "end": None}))
    assert len(play(game, 1, [0] * 3)) == 3


def test_groups_that_choose_the_same_actions_replay_nothing() -> None:
    game = make_game("gym:Probe-v0", size=64)
    game.check_restorable()
    Probe.steps = 0
    episodes = [Episode(game, 5) for _ in range(4)]
    for _ in range(20):
        for episode in episodes:
            episode.act(0)
    assert Probe.steps == 80


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "Pendulum-v1", "Acrobot-v1", "CliffWalking-v1", "Taxi-v4"])
def test_silence_does_not_pay(env_id: str) -> None:
    game = make_game(f"gym:{env_id}", size=64, frame_skip=2)
    silent, random, rng = Episode(game, 0), Episode(game, 0), np.random.default_rng(0)
    for _ in range(20):
        random.act(game.random_action(rng))
        silent.respond("?")
    assert silent.score <= random.score < 0


class Screen(Probe):
    """Copies its state, but draws only on steps, and repeats a hidden last action if `sticky`, as ALE does."""

    def __init__(self, render_mode: str, sticky: float = 0.0) -> None:
        super().__init__(render_mode)
        self.ale, self.sticky, self.last = self, sticky, 0

    def getFloat(self, name: str) -> float:
        return self.sticky

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        found = super().reset(seed=seed)
        self.last, self.screen = 0, self.shade
        return found

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        action, self.last = (self.last if self.sticky and self.np_random.random() < self.sticky else action), action
        result = super().step(action)
        self.screen = self.shade
        return result[0], result[1] + int(action), *result[2:]

    def render(self) -> Any:
        return np.full((4, 6, 3), self.screen, np.uint8)

    def clone_state(self, include_rng: bool) -> Any:
        return self.shade, [*self.played], self.np_random.bit_generator.state

    def restore_state(self, state: Any) -> None:
        self.shade, self.np_random.bit_generator.state = state[0], state[2]
        self.played = [*state[1]]


gymnasium.register("Screen-v0", entry_point=cast(Any, Screen), disable_env_checker=True)


@pytest.mark.parametrize("sticky", [0.0, 0.5])
def test_copies_of_states_are_complete(sticky: float) -> None:
    config: dict[str, Any] = {"size": 64, "options": f"sticky={sticky}"}
    game = make_game("gym:Screen-v0", running=1, **config)
    episodes = [Episode(game, seed) for seed in (1, 2, 1)]
    for index in range(10):
        for episode in episodes:
            episode.act(index % 3 - 1)
            Episode(game, 9).act(1)
    alone = play(make_game("gym:Screen-v0", **config), 1, [index % 3 - 1 for index in range(10)])
    for episode in (episodes[0], episodes[2]):
        assert episode.score == pytest.approx(sum(reward for reward, _, _ in alone))
        assert game.images(episode.state)[-1].tobytes() == alone[-1][1]


def test_records_name_the_environment() -> None:
    game = make_game("gym:CartPole-v1", options="sutton_barto_reward=true", size=64)
    record = GameRecord.of(game)
    assert record.id == "gym:CartPole-v1"
    assert record.game() == game
    with pytest.raises(UsageError, match=r"configuration of gym:Taxi-v4: it is one of gym:CartPole-v1"):
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
    envs = vlmgym.make_vec("gym:CartPole-v1", 3, size=64)
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (3, 64, 64, 3)
    assert envs.step(np.array([0, 1, 0]))[1].tolist() == [1.0] * 3
    envs.close()
    rows = vlmgym.make_dataset("gym:FrozenLake-v1", 2, size=64)
    assert [vlmgym.score(row["snapshot"], "<answer>left</answer>").outcome.value for row in rows] == ["played"] * 2


@pytest.mark.parametrize("env_id", ["MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToRedBall-v0", "ALE/Breakout-v5"])
def test_environments_of_other_packages(env_id: str) -> None:
    pytest.importorskip("ale_py" if env_id.startswith("ALE") else "minigrid")
    game = make_game(f"gym:{env_id}", size=64)
    for check in GAME_CHECKS:
        if check_name(check) in ("restored_episode", "responses", "image_and_description", "format_and_parse"):
            run_check(check, game, (0,))
