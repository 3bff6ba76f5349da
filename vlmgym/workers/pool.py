"""Pools of worker processes, on this machine or a Ray cluster, that call functions for an event loop."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import re
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal, ParamSpec, TypeVar, get_args

from vlmgym.checks import check_int
from vlmgym.errors import UsageError, VlmgymError, WorkerError, first_line, missing_extra, short_repr
from vlmgym.workers.process import UNPICKLABLE, ChannelClosed, WorkerPool, WorkerProcess, call_function, read_result

P = ParamSpec("P")
T = TypeVar("T")
Future = asyncio.Future[Any]

Backend = Literal["process", "ray"]
"""Location of worker processes: this machine or a Ray cluster."""
MAX_PENDING = 2
"""Maximum pending calls per process: the process handles one while the parent reads the result of another."""
CLOSE_TIMEOUT = 1.0
"""Seconds that a closed pool waits for calls in progress before it kills their processes."""
GRACE = 0.2
"""Seconds between the death of a process and the failure of its calls. If a signal was sent to the whole process group
(such as a job scheduler's SIGTERM), the parent is interrupted within this time instead."""
RESTARTS = 3
"""Maximum number of repetitions of a call whose worker on a cluster died."""
CONNECT_TIMEOUT = 10.0
"""Maximum seconds to wait until a cluster accepts a connection."""


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_num_workers(name: str, num_workers: object, backend: object = "process") -> None:
    """Check a number of workers, which may be None, and the backend.

    Args:
        name: Name of the parameter.
        num_workers: Number of workers, or None.
        backend: Location of the workers.

    Raises:
        UsageError: The number or the backend is invalid.
    """
    if not isinstance(backend, str) or backend not in get_args(Backend):
        raise UsageError(f"backend must be one of {', '.join(get_args(Backend))}, got {short_repr(backend)}")
    check_int(name, num_workers, 0, optional=True)
    if backend == "process" and num_workers and multiprocessing.current_process().daemon:
        raise UsageError(f"{name} must be 0 in a daemonic process, which cannot start others, got {num_workers}")


def num_workers_for(num_tasks: int, num_workers: int | None) -> int:
    """Return the requested number of workers, by default one per core, but at most one per task.

    The default is 0 for a single task, which no other could run beside, and in a daemonic process, such as a worker of
    `multiprocessing.Pool`, which cannot start others.
    """
    default = 0 if num_tasks == 1 or multiprocessing.current_process().daemon else available_cores()
    return min(default if num_workers is None else num_workers, num_tasks)


class ProcessPool(WorkerPool):
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
        self._workers: list[PoolWorker] = []
        self._closed = False
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
        packed = self._workers[0].process.pack(function, args, kwargs)
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
            worker.process.close(max(0.0, deadline - time.monotonic()))

    def _dispatch(self) -> None:
        """Send queued calls, first come, first served, to the least busy workers."""
        while self._queue:
            worker = min(self._workers, key=lambda worker: worker.pending)
            if worker.pending >= MAX_PENDING:
                return
            packed, future = self._queue.popleft()
            if not future.done():  # else it was cancelled
                worker.submit(packed, future)


class PoolWorker:
    """Calls functions in a `WorkerProcess`, in order. Serves one event loop at a time."""

    def __init__(self, on_result: Callable[[], None]) -> None:
        """Start the process.

        Args:
            on_result: Called after each result, and when the process has died.
        """
        self._on_result = on_result
        self._calls: deque[Future] = deque()
        self._unsent = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._death: WorkerError | None = None
        self.process = WorkerProcess()
        self._channel = self.process.channel

    @property
    def pending(self) -> int:
        """Number of calls without a result."""
        return len(self._calls)

    def submit(self, packed: bytes, future: Future) -> None:
        """Send a call from a running event loop.

        Args:
            packed: Result of `WorkerProcess.pack`.
            future: Receives the result, or `WorkerError` if the process dies.
        """
        if self._death is not None:
            future.set_exception(self._death)
            return
        self._calls.append(future)
        self._unsent += packed
        self.listen()
        if self._unsent:
            self._write()

    def listen(self) -> None:
        """Register with the running event loop if there are pending calls, which may be from an earlier event loop."""
        loop = asyncio.get_running_loop()
        if self._calls and self._loop is not loop:
            self._loop = loop
            loop.add_reader(self._channel, self._read)
            self._write()

    def shut_down(self) -> None:
        """Cancel pending calls, and let the process exit after its current call; `process.close` waits for it."""
        self._unregister()
        self._channel.close()
        for future in self._calls:
            cancel(future)

    def _write(self) -> None:
        assert self._loop is not None
        try:
            self._channel.send_available(self._unsent)
        except ChannelClosed:
            self._unsent.clear()  # `_read` handles the death
        if self._unsent:
            self._loop.add_writer(self._channel, self._write)
        else:
            self._loop.remove_writer(self._channel)

    def _read(self) -> None:
        try:
            responses = self._channel.receive_available()
        except ChannelClosed:
            assert self._loop is not None
            self._loop.call_later(GRACE, self._fail)
            return self._unregister()
        for response in responses:
            future = self._calls.popleft()
            if not future.done():  # else it was cancelled
                result = read_result(response)
                if result.error is None:
                    future.set_result(result.value)
                else:
                    future.set_exception(result.error)
            self._on_result()
        return self._unregister() if not self._calls else None

    def _unregister(self) -> None:
        """Unregister from the event loop, which may end before the next call."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._channel)
            self._loop.remove_writer(self._channel)
        self._loop = None

    def _fail(self) -> None:
        self._death = WorkerError(
            "a worker process died; if it ran out of memory, use fewer --workers; scripts must call evaluate under "
            '`if __name__ == "__main__":`'
        )
        while self._calls:
            future = self._calls.popleft()
            if not future.done():
                future.set_exception(self._death)
        self._on_result()


def cancel(future: Future) -> None:
    """Cancel a future unless its event loop is closed."""
    if not future.get_loop().is_closed():
        future.cancel()


# Ray clusters ---------------------------------------------------------------------------------------------------------


class RayPool(WorkerPool):
    """Calls functions on a Ray cluster, as `ProcessPool` does in processes on this machine. Requires the extra `ray`.

    The first of these clusters is used: the cluster that the program has already joined, the cluster at RAY_ADDRESS, a
    cluster that runs on this machine, a new cluster on this machine. All machines of the cluster need the same version
    of vlmgym, and the games' data at the same paths. A machine may be lost at any time; its calls are repeated on other
    machines, so the functions must be pure.
    """

    def __init__(self, num_workers: int | None, num_tasks: int) -> None:
        """Join the cluster.

        Args:
            num_workers: Maximum concurrent calls. Default: one per CPU of the cluster.
            num_tasks: Number of tasks, which bounds the number of workers.

        Raises:
            UsageError: Ray is not installed, no cluster responds, it has no CPU, or the number of workers is 0.
        """
        self._ray = _join_cluster()
        if num_workers == 0:
            raise UsageError("the ray backend needs at least 1 worker")
        if not (limit := num_workers or int(self._ray.cluster_resources().get("CPU", 0))):
            raise UsageError("the Ray cluster has no CPU")
        self.count = min(limit, num_tasks)
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


def _join_cluster() -> Any:
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
            location = f"at RAY_ADDRESS={address}" if address else "on this machine"
            raise UsageError(f"no Ray cluster responds {location}: {first_line(error)}") from None
    return ray
