"""Pools of worker processes that call functions for an event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import NoReturn, ParamSpec, Protocol, TypeVar, runtime_checkable

from vlmgym.errors import UsageError
from vlmgym.workers.limits import Backend, num_workers_for
from vlmgym.workers.pool_worker import Future, PoolWorker, cancel

P = ParamSpec("P")
T = TypeVar("T")

MAX_PENDING = 2
"""Maximum pending calls per process: the process handles one while the parent reads the result of another."""
CLOSE_TIMEOUT = 1.0
"""Seconds that a closed pool waits for calls in progress before it kills their processes."""


@runtime_checkable
class WorkerPool(Protocol):
    """Calls functions in worker processes; see `ProcessPool`.

    Attributes:
        count: Number of processes.
    """

    count: int

    async def start(self) -> None:
        """Wait until all processes are running."""

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a worker."""

    def close(self) -> None:
        """Stop the processes."""

    def __enter__(self) -> WorkerPool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def open_pool(backend: Backend, num_tasks: int, num_workers: int | None) -> WorkerPool:
    """Create a pool.

    Args:
        backend: This machine or a Ray cluster.
        num_tasks: Number of tasks, which bounds the number of workers.
        num_workers: Number of workers. Default: one per core.

    Raises:
        UsageError: See `ProcessPool` and `RayPool`.
    """
    if backend == "ray":
        from vlmgym.workers.ray import RayPool

        return RayPool(num_workers, num_tasks)
    return ProcessPool(num_workers_for(num_tasks, num_workers))


class ProcessPool:
    """Calls functions in worker processes, or in this process if there are none. Serves one event loop at a time.

    The event loop communicates with the processes directly. The threads of `ProcessPoolExecutor` would compete with
    the event loop for the GIL, and cost more CPU time of this process per turn (`docs/log.md`).

    A process that dies is not restarted: its calls fail and the run ends; `vlmgym eval --resume` continues the run.
    """

    def __init__(self, count: int) -> None:
        """Start the processes.

        Args:
            count: Number of processes; 0 to call functions in this process.

        Raises:
            UsageError: The program is read from standard input, which worker processes cannot import.
        """
        if count and getattr(sys.modules["__main__"], "__file__", None) == "<stdin>":
            raise UsageError("worker processes cannot import a program that is read from standard input: use workers=0")
        self.count = count
        self._queue: deque[tuple[bytes, Future]] = deque()
        self._closed = False
        self._workers: list[PoolWorker] = []
        with ExitStack() as on_error:
            on_error.callback(self.close)
            for _ in range(count):
                self._workers.append(PoolWorker(self._dispatch))
            on_error.pop_all()

    async def start(self) -> None:
        """Wait until all processes are running, so that their startup does not slow down the first calls."""
        await asyncio.gather(*(self.call(os.getpid) for _ in range(self.count)))  # one call per idle process

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a worker.

        Raises:
            UsageError: The call or its result cannot be pickled, or the pool is closed.
            WorkerError: A worker died, for instance because it ran out of memory.
            asyncio.CancelledError: The pool was closed during the call.
        """
        if self._closed:
            raise UsageError("the pool is closed")
        if not self._workers:
            await asyncio.sleep(0)  # lets an interrupt cancel the call
            return function(*args, **kwargs)
        packed = self._workers[0].pack(function, args, kwargs)
        for worker in self._workers:
            worker.listen()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((packed, future))
        self._dispatch()
        return await future

    def close(self) -> None:
        """Cancel pending calls and stop the processes; kill those that stay busy."""
        self._closed = True
        for _, future in self._queue:
            cancel(future)
        self._queue.clear()
        for worker in self._workers:
            worker.shut_down()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    def _dispatch(self) -> None:
        """Send queued calls, first come, first served, to the least busy workers."""
        while self._queue:
            worker = min(self._workers, key=lambda worker: worker.pending)
            if worker.pending >= MAX_PENDING:
                return
            packed, future = self._queue.popleft()
            if not future.done():  # else it was cancelled
                worker.submit(packed, future)

    def __reduce__(self) -> NoReturn:
        """Prevent pickling and copying.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a pool of worker processes cannot be pickled or copied")

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
