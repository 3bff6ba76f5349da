"""Vector environments: `send` and `recv`."""

import os
import signal
import time

import numpy as np

from tests.processes import worker_process


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


def test_no_worker_is_starved(make_envs):
    envs = make_envs("2048", 3, 3, size=64)
    envs.reset(seed=0)
    envs.send([0, 0, 0])
    taken = [0, 0, 0]
    for _ in range(30):
        time.sleep(0.01)
        *_, ids = envs.recv()
        taken[ids[0]] += 1
        envs.send([taken[ids[0]] % 4], ids)
    assert min(taken) > 5


def test_several_sends_to_one_worker(make_envs):
    envs, peer = make_envs("2048", 4, 1, size=64), make_envs("2048", 4, 0, size=64)
    envs.reset(seed=0), peer.reset(seed=0)
    for i in range(4):
        envs.send([i], [i])
    rewards = np.zeros(4)
    for _ in range(4):
        _, reward, _, _, _, ids = envs.recv()
        rewards[ids] = reward
    assert np.array_equal(rewards, peer.step([0, 1, 2, 3])[1])
    assert envs.get_states() == peer.get_states()
