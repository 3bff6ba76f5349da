"""Vector environments and evaluations on a Ray cluster of three nodes; runs in .venv-train."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

os.environ["RAY_AUTH_MODE"] = "disabled"

import ray
from ray.cluster_utils import Cluster

from vlmgym import make_vec
from vlmgym.errors import StateError, UsageError, WorkerError
from vlmgym.records.episode import EpisodeRecord
from vlmgym.rollout.runner import Hooks, evaluate
from vlmgym.sandbox.core.game import Game
from vlmgym.workers.ray import RayPool

SMALL: dict[str, Any] = {"size": 64, "autoreset_mode": "SameStep", "max_episode_steps": 7}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster
        ray.shutdown()
    cluster.shutdown()


def kill_node(cluster: Cluster, node_id: str) -> None:
    """Kill all processes of a node, as a power failure would."""
    node = next(node for node in cluster.worker_nodes if node.node_id == node_id)
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [raylet, *raylet.children(recursive=True)]:
        process.send_signal(signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


def equal(ours: Any, theirs: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(ours[:4], theirs[:4], strict=True))


def test_environments_match_local_ones_and_survive_the_loss_of_a_node(cluster: Cluster) -> None:
    ours, theirs = make_vec("2048", 6, backend="ray", **SMALL), make_vec("2048", 6, 0, **SMALL)
    assert ours.num_workers == 3
    assert np.array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    workers: Any = ours._group.workers
    nodes = [worker._worker.node for worker in workers]
    assert len(set(nodes)) == 3
    head = cluster.head_node.node_id
    for turn in range(40):
        actions = rng.integers(0, 4, 6)
        if turn == 20:
            lost = next(node for node in nodes if node != head)
            kill_node(cluster, lost)
            part = workers[nodes.index(lost)].part
            message = rf"environments {part.start} to {part.stop - 1}\) died \(on node .* \({lost[:8]}\)"
            with pytest.warns(RuntimeWarning, match=message):
                results = ours.step(actions)
        else:
            results = ours.step(actions)
        expected = theirs.step(actions)
        assert equal(results, expected)
        assert results[4].keys() == expected[4].keys()
        if "final_obs" in expected[4]:
            pairs = zip(results[4]["final_obs"], expected[4]["final_obs"])
            assert all(np.array_equal(a, b) for a, b in pairs)
    assert ours.get_states() == theirs.get_states()
    copies, theirs_too = ours.branch(2, num_workers=1, render=False), theirs.branch(2)
    assert copies.step([0] * 12)[1].tolist() == theirs_too.step([0] * 12)[1].tolist()
    assert np.array_equal(copies.image(3), theirs_too.image(3))
    for envs in (ours, theirs, copies, theirs_too):
        envs.close()
    cluster.add_node(num_cpus=1)


def test_send_and_recv(cluster: Cluster) -> None:
    envs, theirs = make_vec("2048", 2, 2, backend="ray", size=64), make_vec("2048", 2, 0, size=64)
    envs.reset(seed=0), theirs.reset(seed=0)
    envs.send([0, 1])
    rewards = dict(zip((0, 1), theirs.step([0, 1])[1]))
    for _ in range(2):
        *_, ids = received = envs.recv()
        assert received[1].tolist() == [rewards.pop(int(ids[0]))]
    assert not rewards
    with pytest.raises(UsageError, match="action"):
        envs.step([0, "x"])
    envs.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": 0}, "needs at least 1 worker"),
        ({"num_workers": 99}, "3 CPUs, too few for 99 workers"),
        ({"backend": "slurm"}, "backend must be one of process, ray, got 'slurm'"),
    ],
)
def test_invalid_arguments(cluster: Cluster, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_vec(**{"game": "2048", "num_envs": 100, "backend": "ray", **options})


def without_times(records: list[EpisodeRecord]) -> list[dict[str, Any]]:
    return [record.model_dump(mode="json", exclude={"started"}) for record in records]


def test_episodes_of_a_dead_node_are_repeated(cluster: Cluster) -> None:
    killed: list[str] = []

    def kill_one(_: EpisodeRecord) -> None:
        if not killed:
            killed.append(next(iter(cluster.worker_nodes)).node_id)
            kill_node(cluster, killed[0])

    games: list[Game[Any, Any] | str] = ["2048", "swap"]
    options: dict[str, Any] = {"episodes": 12, "max_turns": 30, "seed": 5}
    ours = evaluate(games, "random-legal", backend="ray", hooks=Hooks(on_episode=kill_one), **options)
    assert killed
    assert without_times(ours) == without_times(evaluate(games, "random-legal", workers=0, **options))
    cluster.add_node(num_cpus=1)


def raise_state_error() -> None:
    raise StateError("invalid state")


def fail() -> None:
    raise ZeroDivisionError("a bug")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_errors_of_calls(cluster: Cluster) -> None:
    with RayPool(2, 2) as workers:
        with pytest.raises(StateError, match="invalid state"):
            asyncio.run(workers.call(raise_state_error))
        with pytest.raises(WorkerError, match="ZeroDivisionError: a bug"):
            asyncio.run(workers.call(fail))
        with pytest.raises(UsageError, match="cannot send an object to a Ray worker"):
            asyncio.run(workers.call(print, threading.Lock()))
        with pytest.raises(WorkerError, match="a call failed in 4 Ray workers"):
            asyncio.run(workers.call(die))
    with pytest.raises(UsageError, match="the pool is closed"):
        asyncio.run(workers.call(raise_state_error))


def test_command_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    from vlmgym.cli.main import main

    command = ["eval", "2048", "--episodes", "2", "--max-turns", "3", "--config", "size=64", "--videos", "0"]
    main([*command, "--backend", "ray", "--output-dir", str(tmp_path / "ray")])
    main([*command, "--workers", "0", "--output-dir", str(tmp_path / "here")])
    lines = [sorted((tmp_path / name / "episodes.jsonl").read_text().splitlines()) for name in ("ray", "here")]
    ours, theirs = ([EpisodeRecord.model_validate_json(line) for line in each] for each in lines)
    assert without_times(ours) == without_times(theirs)
