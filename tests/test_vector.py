import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import vlmgym
from tests.processes import gone
from vlmgym import make_vec
from vlmgym.errors import EpisodeEnded, GenerationError, UsageError, WorkerError
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.envs.single import GameEnv, Response
from vlmgym.sandbox.envs.vector.shared_memory import SharedArray
from vlmgym.sandbox.games.game2048.game import Config2048, Game2048

GAMES = ["2048", "shisensho", "swap"]
SMALL = {"size": 128, "reasoning": 1, "perception": 4}


@pytest.fixture
def make():
    """Make runners that are closed after the test."""
    made = []

    def make_and_keep(*args, **kwargs):
        made.append(make_vec(*args, **kwargs))
        return made[-1]

    yield make_and_keep
    for runner in made:
        runner.close()


def worker_process(runner, number):
    return runner._group.workers[number]._worker.process


def legal_actions(runner, rng):
    """Return a legal action per environment, and any action for ended episodes."""
    actions = []
    for game, state in zip(runner.games, runner.get_states()):
        legal = game.legal_actions(game.from_json(state.state))
        actions.append(legal[rng.integers(len(legal))] if legal else game.random_action(rng))
    return actions


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_environments_match_single_ones(make, game, workers):
    """Bit for bit, across resets, as in Gymnasium's `SyncVectorEnv`."""
    overrides = SMALL | ({"size": 224} if game == "swap" else {})
    runner = make(game, 3, workers, **overrides, max_episode_steps=7)
    peer = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.wrappers.TimeLimit(GameEnv(game, **overrides), 7) for _ in range(3)]
    )
    ours, info = runner.reset(seed=11)
    theirs, their_info = peer.reset(seed=11)
    assert np.array_equal(ours, theirs)
    rng = np.random.default_rng(0)
    for _ in range(25):
        actions = legal_actions(runner, rng)
        ours, *numbers, info = runner.step(actions)
        theirs, *their_numbers, their_info = peer.step(np.array(actions))
        assert np.array_equal(ours, theirs)
        for a, b in zip(numbers, their_numbers):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b)
        for name in ("score", "turn", "seed"):
            assert np.array_equal(info[name], their_info[name])


def test_full_info_matches_single_environments(make):
    runner = make("2048", 2, 1, size=64, full_info=True)
    peer = gymnasium.vector.SyncVectorEnv([lambda: GameEnv("2048", size=64) for _ in range(2)])
    _, info = runner.reset(seed=3)
    _, their_info = peer.reset(seed=3)
    assert info["description"].tolist() == their_info["description"].tolist()
    *_, info = runner.step([0, 1])
    *_, their_info = peer.step(np.array([0, 1]))
    assert set(info) >= {key for key in their_info if not key.startswith("_")}
    assert info["outcome"].tolist() == their_info["outcome"].tolist()
    assert info["legal_actions"].tolist() == their_info["legal_actions"].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_same_step_autoreset(make, workers):
    options = {"max_episode_steps": 3, "size": 64, "autoreset_mode": AutoresetMode.SAME_STEP}
    runner = make("2048", 3, workers, **options)
    peer = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.wrappers.TimeLimit(GameEnv("2048", size=64), 3) for _ in range(3)],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    runner.reset(seed=5), peer.reset(seed=5)
    for turn in range(1, 8):
        actions = np.array([turn % 4, 1, 2])
        ours, *numbers, info = runner.step(actions)
        theirs, *their_numbers, their_info = peer.step(actions)
        assert np.array_equal(ours, theirs)
        assert all(np.array_equal(a, b) for a, b in zip(numbers, their_numbers))
        assert ("final_obs" in info) == ("final_obs" in their_info) == (turn % 3 == 0)
        if turn % 3 == 0:
            for a, b in zip(info["final_obs"], their_info["final_obs"]):
                assert np.array_equal(a, b)
            for name in ("score", "turn", "seed", "outcome"):
                assert np.array_equal(info["final_info"][name], their_info["final_info"][name])
            assert not np.array_equal(info["final_obs"][0], ours[0])


def test_disabled_autoreset(make):
    runner = make("2048", 3, 2, size=64, max_episode_steps=2, autoreset_mode="Disabled")
    first, _ = runner.reset(seed=1)
    runner.step([0, 0, 0])
    *_, truncated, _ = runner.step([1, 1, 1])
    assert truncated.all()
    states = runner.get_states()
    with pytest.raises(EpisodeEnded, match="environment 0 is over"):
        runner.step([0, 0, 0])
    assert runner.get_states() == states
    mask = np.array([True, False, True])
    observations, info = runner.reset(seed=1, options={"reset_mask": mask})
    assert np.array_equal(observations[mask], first[mask])
    assert info["_turn"].tolist() == mask.tolist()
    assert runner.get_states()[1] == states[1]
    with pytest.raises(EpisodeEnded, match="environment 1 is over"):
        runner.step([0, 0, 0])


def test_copies_and_views(make):
    for workers in (0, 1):
        copies, views = (make("2048", 2, workers, size=64, copy=copy) for copy in (True, False))
        old_copy, _ = copies.reset(seed=0)
        old_view, _ = views.reset(seed=0)
        before = old_copy.copy()
        for _ in range(4):
            new_copy, *_ = copies.step([0, 1])
            new_view, *_ = views.step([0, 1])
            copies.step([2, 3]), views.step([2, 3])
        assert np.array_equal(old_copy, before)
        assert not np.array_equal(old_view, before)
        assert np.shares_memory(old_view, new_view)
        assert not np.shares_memory(old_copy, new_copy)


def test_view_outlives_its_runner():
    runner = make_vec("2048", 2, 1, size=64, copy=False)
    view, _ = runner.reset(seed=0)
    before = view.copy()
    runner.close()
    del runner
    gc.collect()
    assert np.array_equal(view, before)


def test_recv_returns_what_is_ready(make):
    peer = make("2048", 6, 0, size=64)
    runner = make("2048", 6, 3, size=64)
    peer.reset(seed=0)
    runner.reset(seed=0)
    taken = dict.fromkeys(range(6), 0)
    rewards = {i: [] for i in range(6)}
    runner.send(np.arange(6) % 4)
    while min(taken.values()) < 5:
        observations, reward, _, _, info, ids = runner.recv()
        assert len(observations) == len(reward) == len(info["turn"]) == len(ids)
        for at, i in enumerate(ids):
            taken[int(i)] += 1
            rewards[int(i)].append(reward[at])
        runner.send((ids + taken[int(ids[0])]) % 4, ids)
    while runner._group.in_flight.any():
        runner.recv()
    for turn in range(5):
        _, reward, *_ = peer.step((np.arange(6) + turn) % 4)
        assert [rewards[i][turn] for i in range(6)] == reward.tolist()


def test_slow_worker_does_not_block_others(make):
    runner = make("2048", 2, 2, size=64)
    runner.reset(seed=0)
    slow = worker_process(runner, 0).pid
    os.kill(slow, signal.SIGSTOP)
    try:
        runner.send([0, 0])
        for _ in range(5):
            *_, ids = runner.recv()
            assert ids.tolist() == [1]
            runner.send([1], [1])
    finally:
        os.kill(slow, signal.SIGCONT)
    assert {int(runner.recv()[-1][0]) for _ in range(2)} == {0, 1}


def test_no_worker_is_starved(make):
    runner = make("2048", 3, 3, size=64)
    runner.reset(seed=0)
    runner.send([0, 0, 0])
    taken = [0, 0, 0]
    for _ in range(30):
        time.sleep(0.01)
        *_, ids = runner.recv()
        taken[ids[0]] += 1
        runner.send([taken[ids[0]] % 4], ids)
    assert min(taken) > 5


def test_several_sends_to_one_worker(make):
    runner, peer = make("2048", 4, 1, size=64), make("2048", 4, 0, size=64)
    runner.reset(seed=0), peer.reset(seed=0)
    for i in range(4):
        runner.send([i], [i])
    rewards = np.zeros(4)
    for _ in range(4):
        _, reward, _, _, _, ids = runner.recv()
        rewards[ids] = reward
    assert np.array_equal(rewards, peer.step([0, 1, 2, 3])[1])
    assert runner.get_states() == peer.get_states()


def test_recv_infos_have_its_length(make):
    runner = make("2048", 4, 2, size=64, full_info=True)
    runner.reset(seed=0)
    runner.send([0, 1, 2, 3])
    *_, info, ids = runner.recv()
    assert {len(value) for value in info.values() if not isinstance(value, dict)} == {len(ids)} == {2}
    assert {len(value) for value in info["reward_parts"].values()} == {2}


def test_branches_of_ended_episodes(make):
    for mode in ("NextStep", "Disabled"):
        runner = make("2048", 2, 0, size=64, max_episode_steps=2, autoreset_mode=mode)
        runner.reset(seed=0)
        runner.step([0, 1]), runner.step([1, 0])
        copies = runner.branch(2, num_workers=0)
        if mode == "Disabled":
            with pytest.raises(EpisodeEnded, match="environment 0 is over"):
                copies.step([0] * 4)
        else:
            *_, info = copies.step([0] * 4)
            assert info["turn"].tolist() == [0] * 4
        copies.close()


def test_branches_are_reproducible_across_resets(make):
    runner = make("2048", 2, 0, size=64, max_episode_steps=3)
    runner.reset(seed=0)
    runner.step([0, 1])
    seeds = []
    for _ in range(2):
        copies = runner.branch(2)
        for _ in range(6):
            *_, info = copies.step([0, 1, 2, 3])
        seeds.append(info["seed"].tolist())
        copies.close()
    assert seeds[0] == seeds[1]


def test_views_are_read_only(make):
    views, copies = (make("2048", 2, 0, size=64, copy=copy) for copy in (False, True))
    view, _ = views.reset(seed=0)
    copy, _ = copies.reset(seed=0)
    with pytest.raises(ValueError, match="read-only"):
        view[:] = 0
    copy[:] = 0
    copy.setflags(write=False)
    del copy
    for _ in range(5):
        assert np.array_equal(copies.step([0, 1])[0], views.step([0, 1])[0])


def test_invalid_arguments_change_nothing(make):
    for workers in (0, 2):
        runner = make("2048", 4, workers, size=64)
        runner.reset(seed=0)
        states = runner.get_states()
        bad = states[2].model_copy(update={"state": "{}"})
        for call in (
            lambda runner=runner, states=states, bad=bad: runner.set_states([*states[1::-1], bad, states[3]]),
            lambda runner=runner: runner.reset(seed=-5),
            lambda runner=runner: runner.reset(seed=[1.5, 2, 3, 4]),
            lambda runner=runner: runner.step([0, 0, "x", 0]),
        ):
            with pytest.raises(UsageError):
                call()
            assert runner.get_states() == states
        runner.reset(seed=np.arange(4))
        runner.step([0, 1, 2, 3])


class Ungeneratable(Game2048):
    """Cannot start an episode with an odd variation seed."""

    name = "ungeneratable"

    def start(self, rng):
        state = super().start(rng)
        if state.variation_seed % 2:
            raise GenerationError("no board was found")
        return state


def can_start(seed):
    return Game2048().start(np.random.default_rng(seed)).variation_seed % 2 == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_generation_error_closes_the_runner(make, workers):
    good = [seed for seed in range(100) if can_start(seed)]
    bad = next(seed for seed in range(100) if not can_start(seed))
    runner = make(Ungeneratable(Config2048(size=64)), 3, workers, max_episode_steps=1)
    runner.reset(seed=good[:3])
    with pytest.raises(GenerationError, match=f"environment 2 .* with seed {bad}"):
        runner.reset(seed=[*good[:2], bad])
    assert runner.closed
    with pytest.raises(UsageError, match="the runner is closed"):
        runner.step([0] * 3)
    runner = make(Ungeneratable(Config2048(size=64)), 3, workers, max_episode_steps=1)
    runner.reset(seed=good[:3])
    with pytest.raises(GenerationError, match=r"environment \d could not start an episode.*: no board was found"):
        [runner.step([0] * 3) for _ in range(100)]
    assert runner.closed


class Buggy(Game2048):
    """Raises in `step`."""

    name = "buggy"

    def step(self, state, action, rng):
        raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("workers", [0, 2])
def test_bug_in_a_game_closes_the_runner(make, workers):
    runner = make(Buggy(), 2, workers)
    runner.reset(seed=0)
    with pytest.raises(WorkerError, match="a game raised ZeroDivisionError: a bug") as raised:
        runner.step([0, 0])
    assert "in step" in "".join(traceback.format_exception(raised.value))
    with pytest.raises(UsageError, match="closed"):
        runner.step([0, 0])


def test_interrupt_closes_the_runner(make):
    runner = make("2048", 2, 2, size=64)
    runner.reset(seed=0)
    os.kill(worker_process(runner, 1).pid, signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        runner.step([0, 0])
    with pytest.raises(UsageError, match="closed"):
        runner.step([0, 0])


def test_image_without_rendering(make):
    drawn = make("2048", 3, 0, size=64)
    blind = make("2048", 3, 2, size=64, render=False)
    observations, _ = drawn.reset(seed=0)
    nothing, _ = blind.reset(seed=0)
    assert nothing.shape == (3, 0, 0, 3)
    assert blind.observation_space.contains(nothing)
    observations, *_ = drawn.step([0, 1, 2])
    blind.step([0, 1, 2])
    assert all(np.array_equal(blind.image(i), observations[i]) for i in range(3))
    assert all(np.array_equal(a, b) for a, b in zip(blind.render(), observations))


def test_get_and_set_states(make):
    runner = make("2048", 3, 2, size=64)
    runner.reset(seed=0)
    runner.step([0, 1, 2])
    states = runner.get_states()
    there = [runner.step([3, 2, 1])[0] for _ in range(4)][-1]
    other = make("2048", 3, 0, size=64)
    other.set_states(states)
    assert np.array_equal([other.step([3, 2, 1])[0] for _ in range(4)][-1], there)
    runner.set_states(states[:1], [2])
    assert runner.get_states()[2] == states[0]


def test_branch(make):
    runner = make("2048", 2, 1, size=64)
    runner.reset(seed=0)
    runner.step([0, 1])
    copies = runner.branch(3, num_workers=0)
    assert copies.get_states() == [state for state in runner.get_states() for _ in range(3)]
    copies.step([Response(f"<answer>{word}</answer>") for word in ("up", "right", "nonsense") * 2])
    assert copies.call("snapshot")[2].turn == 2
    ours, *_ = runner.step([0, 1])
    assert np.array_equal(copies.image(0), ours[0])
    assert np.array_equal(copies.image(4), ours[1])
    chance = runner.branch(8, num_workers=0, seed=1)
    chance.step([2] * 16)
    assert len({state.state for state in chance.get_states()[:8]}) > 2
    copies.close(), chance.close()


def test_several_games_and_difficulties(make):
    games = [vlmgym.make_game("2048", size=256), vlmgym.make_game("swap", reasoning=2, size=256), "shisensho"]
    runner = make(games, 7, 2, size=256)
    observations, _ = runner.reset(seed=0)
    assert [game.name for game in runner.games] == ["2048", "swap", "shisensho"] * 2 + ["2048"]
    assert observations.shape == (7, 256, 256, 3)
    for i, game in enumerate(runner.games):
        env = GameEnv(game)
        assert np.array_equal(env.reset(seed=i)[0], observations[i])
    assert runner.action_space.contains(runner.action_space.sample())
    runner.step(legal_actions(runner, np.random.default_rng(0)))
    with pytest.raises(UsageError, match="same size"):
        make(["2048", vlmgym.make_game("2048", size=64)], 2, 0)


@pytest.mark.parametrize("when", ["between", "during"])
def test_killed_worker_resumes(make, when):
    runner, peer = make("2048", 4, 2, **SMALL), make("2048", 4, 0, **SMALL)
    runner.reset(seed=0), peer.reset(seed=0)
    rng = np.random.default_rng(0)
    for turn in range(60):
        actions = rng.integers(0, 4, 4)
        if turn in (3, 50):
            process = worker_process(runner, 1)
            if when == "during":
                os.kill(process.pid, signal.SIGSTOP)
                runner.send(actions)
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            with pytest.warns(RuntimeWarning, match="environments 2 to 3.*resumes"):
                ours = _received(runner) if when == "during" else runner.step(actions)[:4]
        else:
            ours = runner.step(actions)[:4]
        theirs = peer.step(actions)[:4]
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs))
    assert runner.get_states() == peer.get_states()


def _received(runner):
    """Receive two results, and sort them by environment."""
    parts = [runner.recv() for _ in range(2)]
    order = np.concatenate([part[-1] for part in parts]).argsort()
    return [np.concatenate([part[k] for part in parts])[order] for k in range(4)]


def test_hanging_worker(make):
    runner = make("2048", 2, 2, size=64, timeout=0.3)
    runner.timeout = 30
    runner.reset(seed=0)
    runner.timeout = 0.3
    process = worker_process(runner, 1)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match=rf"{process.pid} \(environments 1 to 1\) timed out"):
        runner.step([0, 0])
    assert not process.is_alive()
    runner.close()


@pytest.mark.parametrize("call", ["send", "call"])
def test_worker_that_does_not_read(make, call):
    runner = make("2048", 2, 2, size=64, timeout=60)
    runner.reset(seed=0)
    runner.timeout = 0.5
    process = worker_process(runner, 1)
    os.kill(process.pid, signal.SIGSTOP)
    start = time.monotonic()
    with pytest.raises(WorkerError, match=rf"{process.pid} \(environments 1 to 1\) timed out"):
        runner.send([Response("x" * 8_000_000)] * 2) if call == "send" else runner.set_attr("note", "x" * 8_000_000)
    assert time.monotonic() - start < 10
    assert not process.is_alive()
    with pytest.raises(UsageError, match="closed"):
        runner.step([0, 0])


def test_large_messages(make):
    runner = make("2048", 2, 2, size=64)
    runner.reset(seed=0)
    *_, info = runner.step([Response("x" * 8_000_000)] * 2)
    assert info["outcome"].tolist() == ["unparsable"] * 2
    runner.set_attr("note", ["y" * 8_000_000, "z"])
    assert [len(note) for note in runner.get_attr("note")] == [8_000_000, 1]


class BecomesLock:
    """Unpickles as an object that cannot be pickled."""

    def __reduce__(self):
        return threading.Lock, ()


def test_unpicklable_objects_are_rejected(make):
    runner = make("2048", 2, 2, size=64)
    runner.reset(seed=0)
    with pytest.raises(UsageError, match="cannot send an object to a worker"):
        runner.call("prompt", lambda: 0)
    with pytest.raises(UsageError, match="cannot send an object to a worker"):
        runner.set_attr("note", lambda: 0)
    runner.set_attr("note", BecomesLock())
    with pytest.raises(UsageError, match="cannot return its result"):
        runner.get_attr("note")
    runner.step([0, 0])


@pytest.mark.parametrize("workers", [0, 2])
def test_set_attr(make, workers):
    runner = make("2048", 4, workers, size=64)
    runner.set_attr("note", list("abcd"))
    runner.reset(seed=0)
    runner.set_attr("reward", RewardConfig(illegal=-5.0))
    assert runner.get_attr("note") == tuple("abcd")
    assert runner.step([Response("<answer>9</answer>")] * 4)[1].tolist() == [-5.0] * 4
    if workers:
        process = worker_process(runner, 1)
        process.kill()
        process.join()
        with pytest.warns(RuntimeWarning, match="resumes"):
            assert runner.step([Response("<answer>9</answer>")] * 4)[1].tolist() == [-5.0] * 4
        assert runner.get_attr("note") == tuple("abcd")
    copies = runner.branch(2, num_workers=0)
    assert copies.get_attr("note") == tuple("aabbccdd")
    assert copies.step([Response("<answer>9</answer>")] * 8)[1].tolist() == [-5.0] * 8
    copies.set_attr("note", "e")
    assert copies.get_attr("note") == ("e",) * 8
    assert runner.get_attr("note") == tuple("abcd")
    copies.close()
    for name, value, message in [
        ("game", 0, "'game': create another runner"),
        ("episode", 0, "'episode': use set_states"),
        ("np_random", 0, "'np_random': use the seed of reset"),
        ("reward", 1.0, "reward must be a RewardConfig"),
        ("step", 0, "'step': it is an internal attribute"),
        ("frames", 0, "internal attribute"),
        ("note", [1, 2], "got 2 values for 4 environments"),
    ]:
        with pytest.raises(UsageError, match=message):
            runner.set_attr(name, value)


def test_infos_match_gymnasium(make):
    overrides = {"size": 64}
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        runner = make("2048", 3, 0, **overrides, max_episode_steps=3, autoreset_mode=mode, full_info=True)
        peer = gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.wrappers.TimeLimit(GameEnv("2048", **overrides), 3)] * 3, autoreset_mode=mode
        )
        assert runner.metadata == peer.metadata | {"render_modes": ["rgb_array"]}
        answers = [runner.reset(seed=0), peer.reset(seed=0)]
        for turn in range(9):
            actions = [turn % 4, Response("no answer"), 2]
            if turn == 4:
                mask = np.array([True, False, True])
                answers = [env.reset(seed=9, options={"reset_mask": mask}) for env in (runner, peer)]
            ours, theirs = (answer[-1] for answer in answers)
            compare_infos(ours, theirs)
            answers = [runner.step(actions), peer.step(np.array(actions, object))]


def compare_infos(ours, theirs):
    """Check that infos have the fields, masks, types and values of Gymnasium; only the outcome is added."""
    assert set(ours) - set(theirs) <= {"outcome", "_outcome"}
    for name, value in theirs.items():
        if isinstance(value, dict):
            compare_infos(ours[name], value)
            continue
        assert ours[name].dtype == value.dtype, name
        mask = value if name.startswith("_") else theirs[f"_{name}"]
        assert np.array_equal(ours[name if name.startswith("_") else f"_{name}"], mask), name
        assert all(np.array_equal(a, b) for a, b in zip(ours[name][mask], value[mask])), name


def test_wrappers_of_gymnasium(make):
    runner = make("2048", 2, 0, size=64, max_episode_steps=2)
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(runner)
    env = gymnasium.wrappers.vector.DictInfoToList(env)
    env.reset(seed=0)
    env.step(np.array([0, 0]))
    *_, infos = env.step(np.array([1, 1]))
    assert [info["episode"]["l"] for info in infos] == [2, 2]
    assert {info["outcome"] for info in infos} <= {"played", "illegal"}
    *_, infos = env.step(np.array([1, 1]))
    assert all("outcome" not in info for info in infos)
    assert env.single_action_space == gymnasium.spaces.Discrete(4)
    env.close()
    assert runner.closed


def test_spaces_of_different_games(make):
    sizes = [vlmgym.make_game("shisensho", reasoning=level, size=128) for level in (1, 3)]
    runner = make(sizes, 3, 0)
    assert runner.action_space.shape == (3, 4)
    assert runner.action_space.contains(np.array([[3, 3, 3, 3], [5, 5, 5, 5], [3, 3, 3, 3]]))
    assert not runner.action_space.contains(np.array([[5, 5, 5, 5], [5, 5, 5, 5], [3, 3, 3, 3]]))
    runner.reset(seed=0)
    runner.step(runner.action_space.sample())
    with pytest.raises(AttributeError, match="different action spaces"):
        _ = runner.single_action_space
    assert not hasattr(runner, "single_action_space")
    assert runner.single_observation_space.shape == (128, 128, 3)
    mixed = make([*sizes, vlmgym.make_game("2048", size=128)], 3, 0)
    assert isinstance(mixed.action_space, gymnasium.spaces.Tuple)
    mixed.reset(seed=0)
    mixed.step(mixed.action_space.sample())
    assert make(["2048", vlmgym.make_game("2048", reasoning=1)], 2, 0).single_action_space.n == 4


def test_invalid_calls(make):
    runner = make("2048", 4, 2, size=64)
    for call, message in [
        (lambda: runner.step([0] * 4), "reset the environments before the first step"),
        (lambda: runner.recv(), "call send before recv"),
        (lambda: runner.get_states(), "reset the environments first"),
        (lambda: runner.reset(seed=[1]), "got 1 seeds for 4 environments"),
        (lambda: runner.reset(options={"mask": 1}), "unknown reset option 'mask'"),
        (lambda: runner.reset(options={"reset_mask": np.zeros(4, bool)}), "not all False"),
    ]:
        with pytest.raises(UsageError, match=message):
            call()
    runner.reset(seed=0)
    for call, message in [
        (lambda: runner.step([0] * 3), "got 3 actions for 4 environments"),
        (lambda: runner.step(["up"] * 4), "an action of 2048 must be in Discrete"),
        (lambda: runner.step([1, 2, 3, 9]), "in Discrete.*got 9"),
        (lambda: runner.send([-1], [2]), "in Discrete.*got -1"),
        (lambda: runner.send([0, 0], [1, 1]), "distinct integers from 0 to 3"),
        (lambda: runner.send([0], [4]), "distinct integers from 0 to 3"),
        (lambda: runner.call("reset"), "cannot call 'reset'"),
        (lambda: runner.get_attr("nonsense"), "no attribute 'nonsense'"),
        (lambda: runner.set_states([]), "got 0 states"),
        (lambda: runner.branch(0), "n must be an integer of at least 1"),
    ]:
        with pytest.raises(UsageError, match=message):
            call()
    runner.send([0], [1])
    for call, message in [
        (lambda: runner.step([0] * 4), "receive all results"),
        (lambda: runner.send([0, 0], [0, 1]), "result of environment 1 was not received"),
        (lambda: runner.reset(), "environment 1 was not received"),
        (lambda: runner.get_states(), "receive all results"),
    ]:
        with pytest.raises(UsageError, match=message):
            call()
    runner.recv()
    runner.step([0] * 4)
    runner.close()
    runner.close()
    with pytest.raises(UsageError, match="closed"):
        runner.step([0] * 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs must be an integer of at least 1, got 0"),
        ({"num_envs": "4"}, "num_envs must be an integer of at least 1, got '4'"),
        ({"num_workers": -1}, "num_workers must be an integer of at least 0, got -1"),
        ({"autoreset_mode": "Never"}, "autoreset_mode must be one of NextStep, SameStep, Disabled"),
        ({"perception": 9}, "perception must be between 1"),
        ({"rows": 99}, "rows"),
        ({"game": []}, "games must not be empty"),
        ({"game": "chess"}, "unknown game 'chess'"),
    ],
)
def test_invalid_arguments(options, message):
    with pytest.raises(UsageError, match=message):
        make_vec(**{"game": "2048"} | options)


def test_spaces_seeds_and_attributes(make):
    runner = make("2048", 3, 2, size=64)
    assert isinstance(runner, gymnasium.vector.VectorEnv)
    assert runner.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert runner.single_observation_space == gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    observations, _ = runner.reset(seed=[7, 7, 9])
    assert runner.observation_space.contains(observations)
    assert np.array_equal(observations[0], observations[1])
    assert not np.array_equal(observations[0], observations[2])
    assert runner.get_attr("np_random_seed") == runner.np_random_seed == (7, 7, 9)
    drawn = [int(generator.integers(2**31)) for generator in runner.np_random]
    assert drawn == [int(gymnasium.utils.seeding.np_random(seed)[0].integers(2**31)) for seed in (7, 7, 9)]
    assert [game.id for game in runner.get_attr("game")] == ["2048-v0"] * 3
    assert runner.call("prompt")[0].startswith("The image shows a 2048 board")
    a, _ = runner.reset(seed=0)
    b, _ = runner.reset()
    again, _ = runner.reset(seed=0)
    assert np.array_equal(a, again)
    assert not np.array_equal(a, b)


PARENT = """
import os, sys, time
from vlmgym import make_vec

if __name__ == "__main__":
    runner = make_vec("2048", 4, 2, size=64)
    runner.reset(seed=0)
    print(*(worker._worker.process.pid for worker in runner._group.workers), flush=True)
    {then}
"""


@pytest.mark.parametrize(
    ("then", "how", "code"),
    [
        ("time.sleep(60)", signal.SIGKILL, -signal.SIGKILL),
        ("time.sleep(60)", signal.SIGTERM, -signal.SIGTERM),
        ("time.sleep(60)", signal.SIGINT, -signal.SIGINT),
        ("pass", None, 0),
        ("raise SystemExit(3)", None, 3),
    ],
)
def test_workers_end_with_their_parent(tmp_path, then, how, code):
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT).format(then=then))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    if how is not None:
        os.killpg(parent.pid, how) if how is signal.SIGINT else parent.send_signal(how)
    _, errors = parent.communicate(timeout=30)
    assert len(pids) == 2
    assert parent.returncode == code
    assert "leaked" not in errors
    assert gone(pids)


def test_shared_memory_is_freed():
    def shared():
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Shmem:"))

    before = shared()
    array = SharedArray((256, 1024, 1024), np.uint8)
    array.array()[:] = 1
    during = shared()
    del array
    gc.collect()
    assert during - before > 200_000
    assert shared() - before < 100_000
