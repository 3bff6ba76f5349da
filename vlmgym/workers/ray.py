"""Workers on a Ray cluster. Requires the extra `ray`.

The first of these clusters is used: the cluster that the program has already joined, the cluster at RAY_ADDRESS, a
cluster that runs on this machine, a new cluster on this machine. All machines of the cluster need the same version of
vlmgym, and the games' data at the same paths. A machine may be lost at any time; its work is repeated on other
machines with the same results.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from vlmgym.errors import UsageError, VlmgymError, WorkerError, first_line, missing_extra
from vlmgym.workers.process import (
    UNPICKLABLE,
    Handler,
    Result,
    WorkerPool,
    call_function,
    handle,
    read_result,
    unsendable,
)

P = ParamSpec("P")
T = TypeVar("T")

RESTARTS = 3
"""Maximum number of repetitions of a call whose worker died."""
CONNECT_TIMEOUT = 10.0
"""Maximum seconds to wait until the cluster accepts a connection."""


def join_cluster() -> Any:
    """Connect to a cluster and return the module `ray`.

    Raises:
        UsageError: Ray is not installed, or no cluster responds.
    """
    try:
        import ray
    except ImportError:
        raise missing_extra("the ray backend", "Ray", "ray") from None
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS")
        try:
            if address and (host := re.search(r"([^/@]+):(\d+)$", address)):
                socket.create_connection((host[1], int(host[2])), CONNECT_TIMEOUT).close()  # Ray retries for minutes
            ray.init(logging_level=logging.WARNING)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            where = f"at RAY_ADDRESS={address}" if address else "on this machine"
            raise UsageError(f"no Ray cluster responds {where}: {first_line(error)}") from None
    return ray


def cluster_workers_for(ray: Any, num_tasks: int, num_workers: int | None) -> int:
    """Return the requested number of workers, by default one per CPU, but at most one per task.

    Args:
        ray: Result of `join_cluster`.
        num_tasks: Number of tasks.
        num_workers: Requested number of workers.

    Raises:
        UsageError: The number is 0, or exceeds the CPUs of the cluster.
    """
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if num_workers == 0:
        raise UsageError("the ray backend needs at least 1 worker")
    if (num_workers or 1) > cpus:
        raise UsageError(f"the Ray cluster has {cpus} CPUs, too few for {num_workers or 1} workers")
    return min(cpus if num_workers is None else num_workers, num_tasks)


class RayWorker:
    """A worker in an actor of the cluster; used like a `WorkerProcess`.

    The actor reserves no CPU, so that more workers than CPUs fit, for instance after the loss of a machine. It reserves
    one byte of memory, because Ray ignores the scheduling strategy of actors that reserve nothing.
    """

    def __init__(self, make_handler: Callable[..., Handler], *args: Any) -> None:
        """Start the actor; see `WorkerProcess` for the arguments."""
        import ray

        self._ray = ray
        options = {"num_cpus": 0, "memory": 1, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(_Actor).options(**options).remote(make_handler, args)
        self._responses: deque[Any] = deque()

    def pack(self, *args: Any) -> bytes:
        """Pickle the arguments of a call. Classes of `__main__` are pickled by value.

        Raises:
            UsageError: The arguments cannot be pickled.
        """
        from ray import cloudpickle

        try:
            data: bytes = cloudpickle.dumps(args)
        except UNPICKLABLE as error:
            raise unsendable(error) from error
        return data

    def send(self, packed: bytes) -> None:
        """Send a call."""
        self._responses.append(self._actor.handle.remote(packed))

    def receive(self) -> Result:
        """Wait for the result of the oldest call.

        Raises:
            WorkerError: The worker died.
        """
        from ray.exceptions import RayError

        try:
            data, *buffers = self._ray.get(self._responses.popleft())
        except RayError as error:
            raise WorkerError(f"a Ray worker died: {first_line(error)}") from error
        return read_result(data, buffers)

    def close(self) -> None:
        """Stop the worker; kill it if it is busy. Idempotent."""
        if self._ray.is_initialized():  # else the program is exiting, and the actor with it
            self._ray.kill(self._actor)


class _Actor:
    def __init__(self, make_handler: Callable[..., Handler], args: tuple[Any, ...]) -> None:
        self._handler = make_handler(*args)

    def handle(self, message: bytes) -> list[Any]:
        """Handle a call. Return the pickled response and its buffers as arrays, which Ray transfers without copies."""
        import numpy as np
        from ray import cloudpickle

        buffers: list[Any] = []

        def pack(response: Any) -> bytes:
            buffers.clear()
            data: bytes = cloudpickle.dumps(response, protocol=5, buffer_callback=buffers.append)
            return data

        response = handle(self._handler, message, pack)
        return [np.frombuffer(data, np.uint8) for data in (response, *(buffer.raw() for buffer in buffers))]


class RayPool(WorkerPool):
    """Calls functions on a Ray cluster, as `ProcessPool` does in processes on this machine.

    The functions must be pure: calls on a lost machine are repeated on other machines.
    """

    def __init__(self, num_workers: int | None, num_tasks: int) -> None:
        """Join the cluster.

        Args:
            num_workers: Maximum concurrent calls. Default: one per CPU of the cluster.
            num_tasks: Number of tasks, which bounds the number of workers.

        Raises:
            UsageError: See `join_cluster` and `cluster_workers_for`.
        """
        self._ray = join_cluster()
        self.count = cluster_workers_for(self._ray, num_tasks, num_workers)
        task = self._ray.remote(call_function)
        self._task = task.options(num_cpus=1, max_retries=RESTARTS, scheduling_strategy="SPREAD")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def start(self) -> None:
        """Do nothing: joining the cluster has started a process on each machine."""

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a worker.

        Raises:
            UsageError: The call cannot be pickled, or the pool is closed.
            WorkerError: The function raised an unexpected error, the call failed in several workers in a row, or the
                cluster is gone.
        """
        if self._closed:
            raise UsageError("the pool is closed")
        errors = self._ray.exceptions
        async with self._semaphore():
            try:
                pending = self._task.remote(function, args, kwargs)
            except UNPICKLABLE as error:
                raise UsageError(f"cannot send an object to a Ray worker ({first_line(error)})") from error
            try:
                result: T = await pending
            except errors.RayTaskError as error:
                if isinstance(error.cause, VlmgymError):
                    raise error.cause from error
                raise WorkerError(f"a Ray worker raised {type(error.cause).__name__}: {error.cause}") from error
            except errors.RayError as error:
                raise WorkerError(
                    f"a call failed in {RESTARTS + 1} Ray workers in a row: {first_line(error)}"
                ) from error
            return result

    def close(self) -> None:
        """Reject further calls."""
        self._closed = True

    def _semaphore(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._slots = loop, asyncio.Semaphore(self.count)
        return self._slots
