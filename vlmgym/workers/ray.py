"""The processes of vector runners and evaluations on the machines of a Ray cluster; Ray is the extra `ray`.

It is the cluster that the program has joined already, else the one that the variable RAY_ADDRESS names, else one that
runs on this machine, else one is started here. Each of its machines needs vlmgym in the same version, and data of games
at the same paths. A machine may be lost at any time: what was played there is played again elsewhere, to the same end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Callable
from itertools import count
from typing import Any, ParamSpec, TypeVar

import vlmgym
from vlmgym.errors import UsageError, VlmgymError, WorkerError, missing_extra
from vlmgym.workers.channel import UNPICKLABLE
from vlmgym.workers.process import RESTARTS

P = ParamSpec("P")
T = TypeVar("T")

ANSWERS_IN = 10.0
"""Seconds that a cluster has to take a connection."""

_places = count()


def join_cluster() -> Any:
    """The module `ray`, connected to a cluster whose machines have this version of vlmgym.

    Raises:
        UsageError: Ray is not installed, no cluster answers, or a machine has no or another vlmgym.
    """
    try:
        import ray
    except ImportError:
        raise missing_extra("the backend ray", "Ray", "ray") from None
    if not ray.is_initialized():
        named = os.environ.get("RAY_ADDRESS")
        try:
            if named and (address := re.search(r"([^/@]+):(\d+)$", named)):
                socket.create_connection((address[1], int(address[2])), ANSWERS_IN).close()  # Ray tries for minutes
            ray.init(logging_level=logging.WARNING)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            where = f"at RAY_ADDRESS={named}" if named else "on this machine"
            told = str(error).strip().splitlines() or [type(error).__name__]
            raise UsageError(f"no Ray cluster answers {where}: {told[0]}") from None
    _check_machines(ray)
    return ray


def cluster_workers_for(ray: Any, asked: int | None, most: int) -> int:
    """How many workers there are to be.

    Args:
        ray: Of `join_cluster`.
        asked: How many were asked for; None: one for each processor, and no more than `most`.
        most: How many would have something to do.

    Raises:
        UsageError: There are fewer processors, or none were asked for.
    """
    processors = int(ray.cluster_resources().get("CPU", 0))
    if asked == 0:
        raise UsageError("the backend ray plays in worker processes: there is at least 1")
    if (asked or 1) > processors:
        raise UsageError(f"the Ray cluster has {processors} processors, fewer than the {asked or 1} workers asked for")
    return min(processors, most) if asked is None else asked


def _check_machines(ray: Any) -> None:
    def found() -> str:  # travels as code, as this module may not be there
        try:
            from vlmgym import __version__
        except ImportError:
            return ""
        return __version__

    asked = {}
    for node in _machines(ray):
        here = _on_node(ray, node["NodeID"])
        asked[node_name(node)] = ray.remote(found).options(num_cpus=0, scheduling_strategy=here).remote()
    for name, answered in asked.items():
        version = ray.get(answered)
        if version != vlmgym.__version__:
            has = f"vlmgym {version}" if version else "no vlmgym"
            raise UsageError(f"{name} of the Ray cluster has {has}: install vlmgym {vlmgym.__version__} there")


def _machines(ray: Any) -> list[dict[str, Any]]:
    """The machines that have processors to give."""
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]


def _on_node(ray: Any, node: str) -> Any:
    """There, or elsewhere if it is gone."""
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)


def next_node(ray: Any) -> Any:
    """Return a scheduling strategy for the next processor, round-robin over the nodes."""
    seats = [(seat, node["NodeID"]) for node in _machines(ray) for seat in range(int(node["Resources"]["CPU"]))]
    return _on_node(ray, sorted(seats)[next(_places) % len(seats)][1])


def node_name(node: dict[str, Any]) -> str:
    """Name a node by address and id."""
    return f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"


class RayPool:
    """Calls functions in processes of a Ray cluster, as `Workers` does in processes of this machine.

    The functions must be pure: if a machine is lost, its calls are made again on others.
    """

    def __init__(self, asked: int | None, most: int) -> None:
        """Join the cluster.

        Args:
            asked: How many calls are worked on at once; None: as many as the cluster has processors.
            most: How many would have something to do.

        Raises:
            UsageError: As in `join_cluster` and `cluster_workers_for`.
        """
        self._ray = join_cluster()
        self.count = cluster_workers_for(self._ray, asked, most)
        task = self._ray.remote(_call)
        self._task = task.options(num_cpus=1, max_retries=RESTARTS, scheduling_strategy="SPREAD")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def start(self) -> None:
        """Nothing to wait for: joining has started a process on each machine."""

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result.

        Raises:
            UsageError: The function or an argument cannot be sent to a worker, or the pool is closed.
            WorkerError: The workers that had the call died, one after another, or the cluster is gone.
        """
        if self._closed:
            raise UsageError("the pool is closed")
        errors = self._ray.exceptions
        async with self._gate():
            try:
                result = self._task.remote(function, args, kwargs)
            except UNPICKLABLE as error:
                told = str(error).strip().splitlines()[0]
                raise UsageError(f"an object cannot be sent to a Ray worker ({told})") from error
            try:
                answered: T = await result
            except errors.RayTaskError as error:
                if isinstance(error.cause, VlmgymError):
                    raise error.cause from error
                raise WorkerError(f"a Ray worker raised {type(error.cause).__name__}: {error.cause}") from error
            except errors.RayError as error:
                told = str(error).strip().splitlines()[0]
                raise WorkerError(f"a call failed in {RESTARTS + 1} Ray workers, one after another: {told}") from error
            return answered

    def close(self) -> None:
        """Take no more calls."""
        self._closed = True

    def _gate(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._free = loop, asyncio.Semaphore(self.count)
        return self._free

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _call(function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    return function(*args, **kwargs)
