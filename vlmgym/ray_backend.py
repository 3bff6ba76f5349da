"""The processes of vector runners and evaluations on the machines of a Ray cluster; Ray is the extra `ray`.

It is the cluster that the program has joined already, else the one that the variable RAY_ADDRESS names, else one that
runs on this machine, else one is started here. Each of its machines needs vlmgym in the same version, and data of games
at the same paths. A machine may be lost at any time: what was played there is played again elsewhere, to the same end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout  # the built-in one only since Python 3.11
from itertools import count
from typing import Any, ParamSpec, TypeVar

import numpy as np

import vlmgym
from vlmgym.errors import UsageError, VlmgymError, WorkerError, missing_extra
from vlmgym.sandbox.envs.vector.worker import Reply
from vlmgym.sandbox.envs.vector.worker_process import RESTARTS, Plan, ProcessWorker, answer, packed
from vlmgym.workers.channel import UNPICKLABLE, ChannelClosed

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


def workers_of(ray: Any, asked: int | None, most: int) -> int:
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
        asked[_name_of(node)] = ray.remote(found).options(num_cpus=0, scheduling_strategy=here).remote()
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


def _next_place(ray: Any) -> Any:
    """The next processor: one of each machine, then the second of each, and so on, and from the beginning."""
    seats = [(seat, node["NodeID"]) for node in _machines(ray) for seat in range(int(node["Resources"]["CPU"]))]
    return _on_node(ray, sorted(seats)[next(_places) % len(seats)][1])


def _name_of(node: dict[str, Any]) -> str:
    return f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"


# Vector runner --------------------------------------------------------------------------------------------------------


class RayEnvWorker(ProcessWorker):
    """A worker in a process of a Ray cluster. If it dies, or its machine, another goes on from its last checkpoints.

    Processes are dealt out to the processors of the cluster and take none away from others: branches find room, and
    after the loss of a machine all go on with the processors that are left.
    """

    def close(self) -> None:
        """End the process; doing it twice is fine."""
        self._channel.close()

    def _start(self) -> None:
        time.sleep(max(0, self._deaths - 1))  # the cluster may need a moment to notice that a machine is gone
        self._link = self._channel = _ActorLink(self._plan)

    def _death(self) -> str:
        return self._link.death()

    def _name(self) -> str:
        return f"the Ray worker of {self._environments()}"


class _Host:
    """A worker in the process of an actor."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._worker = plan, plan.make()

    def node(self) -> str:
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def answer(self, message: bytes) -> tuple[bytes, tuple[Any, ...] | None]:
        """What a call returns or raises, and all that it wrote into the memory of the runner."""
        from ray import cloudpickle

        name, args = cloudpickle.loads(message)
        answered = answer(self._worker, (name, args))
        memory, part, result = self._plan.memory, self._plan.part, answered[0]
        if not isinstance(result, Reply):
            return packed(answered, cloudpickle.dumps), None
        ids = np.arange(part.start, part.stop) if name == "restore" else np.asarray(args[0]) + part.start
        ended = np.array([i + part.start for i in result.final_info], np.intp)
        written = (
            ids,
            memory.table.array()[ids],
            [frames.array()[ids] for frames in memory.frames or ()],
            ended,
            [frames.array()[ended] for frames in memory.final_frames or ()],
        )
        return packed(answered, cloudpickle.dumps), written


class _ActorLink:
    """Speaks to a `_Host` as `Channel` does to a process."""

    def __init__(self, plan: Plan) -> None:
        import ray

        self._ray, self._memory = ray, plan.memory
        self._actor = ray.remote(_Host).options(num_cpus=0, scheduling_strategy=_next_place(ray)).remote(plan)
        self.node: str | None = None
        """Where it runs, once that is known."""
        self._answers: deque[Future[Any]] = deque()
        self._heard, self._rung = socket.socketpair()
        self._actor.node.remote().future().add_done_callback(self._learn_node)

    def pack(self, message: Any) -> bytes:
        from ray import cloudpickle  # takes classes of the user's program, too

        data: bytes = cloudpickle.dumps(message)
        return data

    def send(self, packed: bytes, timeout: float | None) -> None:
        future = self._actor.answer.remote(packed).future()
        self._answers.append(future)
        future.add_done_callback(self._ring)

    def receive(self, timeout: float | None) -> Any:
        from ray import cloudpickle
        from ray.exceptions import RayError

        try:
            message, written = self._answers[0].result(timeout)
        except FutureTimeout:
            raise TimeoutError from None
        except RayError:
            raise ChannelClosed from None
        self._answers.popleft()
        self._heard.recv(1)
        if written is not None:
            self._write(*written)
        return cloudpickle.loads(message)

    def fileno(self) -> int:
        return self._heard.fileno()

    def death(self) -> str:
        """What has become of the machine or the process."""
        for node in self._ray.nodes():
            if node["NodeID"] == self.node:
                return f"on {_name_of(node)}, which is {'still there' if node['Alive'] else 'gone'}"
        return "before it had a machine"

    def close(self) -> None:
        if self._ray.is_initialized():  # else the program ends, and the process with it
            self._ray.kill(self._actor)
        self._heard.close()
        self._rung.close()

    def _write(self, ids: Any, rows: Any, frames: list[Any], ended: Any, final_frames: list[Any]) -> None:
        self._memory.table.array()[ids] = rows
        for array, images in zip(self._memory.frames or (), frames, strict=True):
            array.array()[ids] = images
        for array, images in zip(self._memory.final_frames or (), final_frames, strict=True):
            array.array()[ended] = images

    def _learn_node(self, answered: Future[Any]) -> None:
        if answered.exception() is None:
            self.node = answered.result()

    def _ring(self, _: Future[Any]) -> None:
        with contextlib.suppress(OSError):  # it is closed
            self._rung.send(b"!")


# Evaluation -----------------------------------------------------------------------------------------------------------


class RayWorkers:
    """Calls functions in processes of a Ray cluster, as `Workers` does in processes of this machine.

    The functions must be pure: if a machine is lost, its calls are made again on others.
    """

    def __init__(self, asked: int | None, most: int) -> None:
        """Join the cluster.

        Args:
            asked: How many calls are worked on at once; None: as many as the cluster has processors.
            most: How many would have something to do.

        Raises:
            UsageError: As in `join_cluster` and `workers_of`.
        """
        self._ray = join_cluster()
        self.count = workers_of(self._ray, asked, most)
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

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _call(function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    return function(*args, **kwargs)
