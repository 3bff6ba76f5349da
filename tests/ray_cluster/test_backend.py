"""Evaluations on a Ray cluster of three nodes; runs in .venv-easyr1."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

os.environ["RAY_AUTH_MODE"] = "disabled"

import ray
from ray.cluster_utils import Cluster

from vlmgym.errors import StateError, UsageError, WorkerError
from vlmgym.evaluation import Hooks, evaluate
from vlmgym.runs.record import EpisodeRecord
from vlmgym.sandbox.core.game import Game
from vlmgym.workers.pool import RayPool


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


def test_no_workers(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="needs at least 1 worker"):
        evaluate("2048", "random", 100, backend="ray", workers=0)


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


def test_command_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    from vlmgym.cli.main import main

    command = ["eval", "2048", "--episodes", "2", "--max-turns", "3", "--config", "size=64", "--videos", "0"]
    main([*command, "--backend", "ray", "--output-dir", str(tmp_path / "ray")])
    main([*command, "--workers", "0", "--output-dir", str(tmp_path / "here")])
    lines = [sorted((tmp_path / name / "episodes.jsonl").read_text().splitlines()) for name in ("ray", "here")]
    ours, theirs = ([EpisodeRecord.model_validate_json(line) for line in each] for each in lines)
    assert without_times(ours) == without_times(theirs)
