"""Vector environments, compared with Gymnasium's."""

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from tests.processes import gone, worker_process
from vlmgym.errors import EpisodeEnded, GameError, GenerationError, UsageError, WorkerError
from vlmgym.sandbox.envs.single import GameEnv, Response
from vlmgym.sandbox.games.game2048 import Config2048, Game2048


def test_disabled_autoreset(make_envs):
    envs = make_envs("2048", 3, 1, size=64, max_episode_steps=2, autoreset_mode="Disabled")
    first, _ = envs.reset(seed=1)
    envs.step([0, 0, 0])
    *_, truncated, _ = envs.step([1, 1, 1])
    assert truncated.all()
    states = envs.get_states()
    with pytest.raises(EpisodeEnded, match="environment 0 is over"):
        envs.step([0, 0, 0])
    assert envs.get_states() == states
    mask = np.array([True, False, True])
    observations, info = envs.reset(seed=1, options={"reset_mask": mask})
    assert np.array_equal(observations[mask], first[mask])
    assert info["_turn"].tolist() == mask.tolist()
    assert envs.get_states()[1] == states[1]
    with pytest.raises(EpisodeEnded, match="environment 1 is over"):
        envs.step([0, 0, 0])


def test_copies_are_stable_and_views_share_memory(make_envs):
    for workers in (0, 1):
        copies, views = (make_envs("2048", 2, workers, size=64, copy=copy) for copy in (True, False))
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


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize(("game", "workers"), [("2048", 0), ("swap", 2)])
def test_results_and_infos_match_gymnasium(make_envs, game, workers, mode):
    """Results equal those of Gymnasium's `SyncVectorEnv`, including after resets."""
    envs = make_envs(game, 3, workers, size=128, max_episode_steps=3, autoreset_mode=mode)
    peer = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.wrappers.TimeLimit(GameEnv(game, size=128), 3)] * 3, autoreset_mode=mode
    )
    assert envs.metadata == peer.metadata | {"render_modes": ["rgb_array"]}
    answers = [envs.reset(seed=0), peer.reset(seed=0)]
    for turn in range(9):
        legal = [envs.game.legal_actions(envs.game.from_json(state.state)) for state in envs.get_states()]
        actions = [legal[0][turn % len(legal[0])], Response("no answer"), legal[2][0]]
        if turn == 4:
            mask = np.array([True, False, True])
            answers = [env.reset(seed=9, options={"reset_mask": mask}) for env in (envs, peer)]
        (*ours, info), (*theirs, their_info) = answers
        assert all(
            np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype
            for a, b in zip(ours, theirs, strict=True)
        )
        compare_infos(info, their_info)
        answers = [envs.step(actions), peer.step(np.array([*actions, None], object)[:-1])]


def compare_infos(ours, theirs):
    """Check that infos equal those of Gymnasium with the same name in masks, types and values."""
    assert {"score", "turn", "seed", "outcome"} <= set(ours)
    assert set(ours) - set(theirs) <= {"outcome", "_outcome"}
    for name in set(ours) & set(theirs):
        value = theirs[name]
        if isinstance(value, dict):
            compare_infos(ours[name], value)
            continue
        assert ours[name].dtype == value.dtype, name
        mask = value if name.startswith("_") else theirs[f"_{name}"]
        assert np.array_equal(ours[name if name.startswith("_") else f"_{name}"], mask), name
        assert all(np.array_equal(a, b) for a, b in zip(ours[name][mask], value[mask])), name


def test_invalid_calls_are_rejected(make_envs):
    envs = make_envs("2048", 4, 0, size=64)
    with pytest.raises(UsageError, match="reset the environments first"):
        envs.step([0] * 4)
    envs.reset(seed=0)
    for call, message in [
        (lambda: envs.step([0] * 3), "got 3 actions for 4 environments"),
        (lambda: envs.step([1, 2, 3, 9]), "in Discrete.*got 9"),
        (lambda: envs.send([0, 0], [1, 1]), "distinct integers from 0 to 3"),
    ]:
        with pytest.raises(UsageError, match=message):
            call()
    envs.send([0], [1])
    with pytest.raises(UsageError, match="result of environment 1 was not received"):
        envs.send([0, 0], [0, 1])
    envs.recv()
    envs.step([0] * 4)
    envs.close()
    envs.close()
    with pytest.raises(UsageError, match="closed"):
        envs.step([0] * 4)


def test_spaces_seeds_and_attributes(make_envs):
    envs = make_envs("2048", 3, 0, size=64)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.single_observation_space == gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    observations, _ = envs.reset(seed=[7, 7, 9])
    assert envs.observation_space.contains(observations)
    assert np.array_equal(observations[0], observations[1])
    assert not np.array_equal(observations[0], observations[2])
    assert envs.get_attr("np_random_seed") == envs.np_random_seed == (7, 7, 9)
    drawn = [int(generator.integers(2**31)) for generator in envs.np_random]
    assert drawn == [int(gymnasium.utils.seeding.np_random(seed)[0].integers(2**31)) for seed in (7, 7, 9)]
    assert [game.id for game in envs.get_attr("game")] == ["2048-v0"] * 3
    assert envs.call("prompt")[0].startswith("The image shows a 2048 board")
    a, _ = envs.reset(seed=0)
    b, _ = envs.reset()
    again, _ = envs.reset(seed=0)
    assert np.array_equal(a, again)
    assert not np.array_equal(a, b)


# `send` and `recv` ----------------------------------------------------------------------------------------------------


def test_recv_returns_what_is_ready(make_envs):
    peer = make_envs("2048", 6, 0, size=64)
    envs = make_envs("2048", 6, 3, size=64)
    peer.reset(seed=0)
    envs.reset(seed=0)
    taken = dict.fromkeys(range(6), 0)
    rewards = {i: [] for i in range(6)}
    envs.send(np.arange(6) % 4)
    while min(taken.values()) < 5:
        observations, reward, _, _, info, ids = envs.recv()
        assert len(observations) == len(reward) == len(info["turn"]) == len(ids)
        for at, i in enumerate(ids):
            taken[int(i)] += 1
            rewards[int(i)].append(reward[at])
        envs.send((ids + taken[int(ids[0])]) % 4, ids)
    while envs._group.in_flight.any():
        envs.recv()
    for turn in range(5):
        _, reward, *_ = peer.step((np.arange(6) + turn) % 4)
        assert [rewards[i][turn] for i in range(6)] == reward.tolist()


def test_slow_worker_does_not_block_others(make_envs):
    envs = make_envs("2048", 2, 2, size=64)
    envs.reset(seed=0)
    slow = worker_process(envs, 0).pid
    os.kill(slow, signal.SIGSTOP)
    try:
        envs.send([0, 0])
        for _ in range(5):
            *_, ids = envs.recv()
            assert ids.tolist() == [1]
            envs.send([1], [1])
    finally:
        os.kill(slow, signal.SIGCONT)
    assert {int(envs.recv()[-1][0]) for _ in range(2)} == {0, 1}


# States and attributes ------------------------------------------------------------------------------------------------


def test_get_and_set_states(make_envs):
    envs = make_envs("2048", 3, 1, size=64)
    envs.reset(seed=0)
    envs.step([0, 1, 2])
    states = envs.get_states()
    there = [envs.step([3, 2, 1])[0] for _ in range(4)][-1]
    other = make_envs("2048", 3, 0, size=64)
    other.set_states(states)
    assert np.array_equal([other.step([3, 2, 1])[0] for _ in range(4)][-1], there)
    envs.set_states(states[:1], [2])
    assert envs.get_states()[2] == states[0]


def test_image_without_rendering(make_envs):
    drawn = make_envs("2048", 3, 0, size=64)
    blind = make_envs("2048", 3, 2, size=64, render=False)
    observations, _ = drawn.reset(seed=0)
    nothing, _ = blind.reset(seed=0)
    assert nothing.shape == (3, 0, 0, 3)
    assert blind.observation_space.contains(nothing)
    observations, *_ = drawn.step([0, 1, 2])
    blind.step([0, 1, 2])
    assert all(np.array_equal(blind.image(i), observations[i]) for i in range(3))
    assert all(np.array_equal(a, b) for a, b in zip(blind.render(), observations))


# Workers ------------------------------------------------------------------------------------------------------------


class Ungeneratable(Game2048):
    """Fails to start an episode if its variation seed is odd."""

    name = "ungeneratable"

    def start(self, rng):
        state = super().start(rng)
        if state.variation_seed % 2:
            raise GenerationError("no board was found")
        return state


def can_start(seed):
    return Game2048().start(np.random.default_rng(seed)).variation_seed % 2 == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_game_that_cannot_start_closes_the_environments(make_envs, workers):
    good = [seed for seed in range(100) if can_start(seed)]
    bad = next(seed for seed in range(100) if not can_start(seed))
    envs = make_envs(Ungeneratable(Config2048(size=64)), 3, workers, max_episode_steps=1)
    envs.reset(seed=good[:3])
    with pytest.raises(GameError, match=f"ungeneratable-v0, seed {bad}: no board was found"):
        envs.reset(seed=[*good[:2], bad])
    assert envs.closed
    with pytest.raises(UsageError, match="closed"):
        envs.step([0] * 3)
    envs = make_envs(Ungeneratable(Config2048(size=64)), 3, workers, max_episode_steps=1)
    envs.reset(seed=good[:3])
    with pytest.raises(GameError, match="no board was found"):
        [envs.step([0] * 3) for _ in range(100)]
    assert envs.closed


def test_interrupt_closes_the_environments(make_envs):
    envs = make_envs("2048", 1, 1, size=64)
    envs.reset(seed=0)
    os.kill(worker_process(envs, 0).pid, signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        envs.step([0])
    with pytest.raises(UsageError, match="closed"):
        envs.step([0])


@pytest.mark.parametrize("when", ["between", "during"])
def test_dead_worker_closes_the_environments(make_envs, when):
    envs = make_envs("2048", 4, 2, size=64)
    envs.reset(seed=0)
    process = worker_process(envs, 1)
    if when == "during":
        os.kill(process.pid, signal.SIGSTOP)
        envs.send([0] * 4)
    process.kill()
    process.join()
    with pytest.raises(WorkerError, match=r"environments 2 to 3\) died \(exit code -9\); if it ran out of memory"):
        [envs.recv() for _ in range(2)] if when == "during" else envs.step([0] * 4)
    with pytest.raises(UsageError, match="closed"):
        envs.step([0] * 4)


def test_hanging_worker_times_out(make_envs):
    envs = make_envs("2048", 2, 2, size=64, timeout=0.3)
    envs.timeout = 30
    envs.reset(seed=0)
    envs.timeout = 0.3
    process = worker_process(envs, 1)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match=rf"{process.pid} \(environments 1 to 1\) timed out"):
        envs.step([0, 0])
    assert not process.is_alive()
    envs.close()


PARENT = """
import os, sys, time
from vlmgym import make_vec

if __name__ == "__main__":
    envs = make_vec("2048", 1, 1, size=64)
    envs.reset(seed=0)
    print(*(worker.process.process.pid for worker in envs._group.workers), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path, how):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    os.killpg(parent.pid, how) if how is signal.SIGINT else parent.send_signal(how)
    _, errors = parent.communicate(timeout=30)
    assert len(pids) == 1
    assert parent.returncode == -how
    assert "leaked" not in errors
    assert gone(pids)


@pytest.mark.parametrize(
    ("game", "mode", "num_workers"), [("2048", "NextStep", 1), ("swap", "SameStep", 0), ("lightsout", "NextStep", 0)]
)
def test_action_masks_are_the_legal_actions(game: str, mode: str, num_workers: int, make_envs: Any) -> None:
    settings = {"num_workers": num_workers, "autoreset_mode": mode, "max_episode_steps": 5, "render": False}
    envs = make_envs(game, 3, action_masks=True, **settings)
    space, rng = envs.single_action_space, np.random.default_rng(0)
    shape = tuple(space.nvec) if hasattr(space, "nvec") else (space.n,)
    _, infos = envs.reset(seed=0)
    for _ in range(12):
        masks = infos["action_mask"]
        assert masks.dtype == np.int8
        episodes = envs.call("episode")
        for mask, episode in zip(masks, episodes, strict=True):
            legal = episode.game.legal_actions(episode.state) or ()
            assert sorted(np.argwhere(mask.reshape(shape)).tolist()) == sorted(
                np.reshape(legal, (-1, len(shape))).tolist()
            )
        chosen = [rng.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in masks]
        actions = np.stack(np.unravel_index(chosen, shape), axis=1).squeeze()
        *_, infos = envs.step(actions)
        assert set(infos["outcome"]) <= {"played", None}
