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
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from vlmgym.errors import UsageError, VlmgymError, WorkerError, first_line, missing_extra
from vlmgym.workers.process import UNPICKLABLE, WorkerPool, call_function

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
        UsageError: The number is 0.
    """
    if num_workers == 0:
        raise UsageError("the ray backend needs at least 1 worker")
    return min(num_workers or int(ray.cluster_resources()["CPU"]), num_tasks)


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

    async def start(self) -> None:
        """Do nothing: joining the cluster has started a process on each machine."""

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a worker.

        Raises:
            UsageError: The call cannot be pickled.
            WorkerError: The function raised an unexpected error, the call failed in several workers in a row, or the
                cluster is gone.
        """
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
        """Do nothing: Ray stops its processes when the program ends."""

    def _semaphore(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._slots = loop, asyncio.Semaphore(self.count)
        return self._slots
