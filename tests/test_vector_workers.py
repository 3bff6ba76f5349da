"""Workers of vector environments: failures, messages, and how they end."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback

import numpy as np
import pytest

from tests.processes import gone, worker_process
from vlmgym.errors import GameError, GenerationError, UsageError, WorkerError
from vlmgym.sandbox.envs.single import Response
from vlmgym.sandbox.games.game2048 import Config2048, Game2048


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


class Buggy(Game2048):
    """Raises in `step`."""

    name = "buggy"

    def step(self, state, action, rng):
        raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("workers", [0, 1])
def test_bug_in_a_game_closes_the_environments(make_envs, workers):
    envs = make_envs(Buggy(), 2, workers)
    envs.reset(seed=0)
    with pytest.raises(GameError, match=r"buggy-v0, seed 0, turn 1: .*a bug") as raised:
        envs.step([0, 0])
    assert "in step" in "".join(traceback.format_exception(raised.value))
    with pytest.raises(UsageError, match="closed"):
        envs.step([0, 0])


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


@pytest.mark.parametrize("call", ["send", "call"])
def test_worker_that_does_not_read(make_envs, call):
    envs = make_envs("2048", 1, 1, size=64, timeout=60)
    envs.reset(seed=0)
    envs.timeout = 0.5
    process = worker_process(envs, 0)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match=rf"{process.pid} \(environments 0 to 0\) timed out"):
        envs.send([Response("x" * 8_000_000)]) if call == "send" else envs.call("to_action", "x" * 8_000_000)
    assert not process.is_alive()
    with pytest.raises(UsageError, match="closed"):
        envs.step([0])


def test_large_messages(make_envs):
    envs = make_envs("2048", 2, 1, size=64)
    envs.reset(seed=0)
    *_, info = envs.step([Response("x" * 8_000_000)] * 2)
    assert info["outcome"].tolist() == ["unparsable"] * 2


def test_unpicklable_objects_are_rejected(make_envs):
    envs = make_envs("2048", 2, 1, size=64)
    envs.reset(seed=0)
    with pytest.raises(UsageError, match="cannot send an object to a worker"):
        envs.call("prompt", lambda: 0)
    envs.step([0, 0])


PARENT = """
import os, sys, time
from vlmgym import make_vec

if __name__ == "__main__":
    envs = make_vec("2048", 1, 1, size=64)
    envs.reset(seed=0)
    print(*(worker.process.process.pid for worker in envs._group.workers), flush=True)
    {then}
"""


@pytest.mark.parametrize(
    ("then", "how", "code"),
    [
        ("time.sleep(60)", signal.SIGKILL, -signal.SIGKILL),
        ("time.sleep(60)", signal.SIGINT, -signal.SIGINT),
        ("pass", None, 0),
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
    assert len(pids) == 1
    assert parent.returncode == code
    assert "leaked" not in errors
    assert gone(pids)
