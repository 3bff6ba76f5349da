"""A pool of worker processes that lives no longer than its parent."""

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
from vlmgym.workers.channel import UNPICKLABLE, Channel
from vlmgym.workers.pool_process import Result, WorkerProcess, cancel, unsendable
from vlmgym.workers.process import Backend, num_workers_for

P = ParamSpec("P")
T = TypeVar("T")

AHEAD = 2
"""Calls that a process is handed at a time: it goes on with the next one while its answer is read."""
LAST_CALLS = 1.0
"""Seconds that the processes may still work on what nobody waits for when the pool is closed."""


@runtime_checkable
class WorkerPool(Protocol):
    """Calls functions in worker processes; see `ProcessPool`.

    Attributes:
        count: Number of processes.
    """

    count: int

    async def start(self) -> None:
        """Wait until all processes run."""

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result."""

    def close(self) -> None:
        """End the processes."""

    def __enter__(self) -> WorkerPool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


def open_pool(backend: Backend, episodes: int, asked: int | None) -> WorkerPool:
    """Workers that play.

    Args:
        backend: On this machine, or on those of a Ray cluster.
        episodes: How many are played.
        asked: How many workers were asked for; None: one per core, and no more than episodes.

    Raises:
        UsageError: There is no Ray cluster, or it has fewer processors.
    """
    if backend == "ray":
        from vlmgym.workers.ray import RayPool

        return RayPool(asked, episodes)
    return ProcessPool(num_workers_for(episodes, asked))


class ProcessPool:
    """Calls functions in worker processes, or in this one if there are none; serves one event loop at a time.

    The event loop speaks to the processes itself: the threads of `concurrent.futures.ProcessPoolExecutor` take turns
    with it at the interpreter's lock, which costs 8 to 23% more processor time a turn (`docs/log.md`).

    A process that dies is not started again: its calls fail, which ends the run, and `vlmgym eval --resume` goes on.
    """

    def __init__(self, count: int) -> None:
        """Start the processes.

        Args:
            count: Number of processes; 0 calls everything in this one.

        Raises:
            UsageError: The program is read from standard input, which a worker process cannot import.
        """
        if count and getattr(sys.modules["__main__"], "__file__", None) == "<stdin>":
            raise UsageError("worker processes cannot import a program that is read from standard input: use workers=0")
        self.count = count
        self._waiting: deque[tuple[bytes, Result]] = deque()
        self._closed = False
        self._processes: list[WorkerProcess] = []
        with ExitStack() as if_one_fails:
            if_one_fails.callback(self.close)
            for _ in range(count):
                self._processes.append(WorkerProcess(self._hand_out))
            if_one_fails.pop_all()

    async def start(self) -> None:
        """Wait until all processes run, so that what follows is not slowed by their start."""
        await asyncio.gather(*(self.call(os.getpid) for _ in range(self.count)))  # each goes to an idle one

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result.

        Raises:
            UsageError: The function or an argument cannot be sent to a worker, or the pool is closed.
            WorkerError: A worker died, for instance of a lack of memory.
            asyncio.CancelledError: The pool was closed meanwhile.
        """
        if self._closed:
            raise UsageError("the pool is closed")
        if not self._processes:
            await asyncio.sleep(0)  # where an interrupt can cancel the work
            return function(*args, **kwargs)
        try:
            message = Channel.pack((function, args, kwargs))
        except UNPICKLABLE as error:
            raise unsendable(error) from error
        for process in self._processes:
            process.listen()
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((message, result))
        self._hand_out()
        return await result

    def close(self) -> None:
        """Cancel the calls that are not answered and end the processes, by force those that stay busy."""
        self._closed = True
        for _, result in self._waiting:
            cancel(result)
        self._waiting.clear()
        for process in self._processes:
            process.hang_up()
        until = time.monotonic() + LAST_CALLS
        for process in self._processes:
            process.join(max(0.0, until - time.monotonic()))

    def _hand_out(self) -> None:
        """Send calls, first come, first served, to the processes that have fewest."""
        while self._waiting:
            process = min(self._processes, key=lambda process: process.waiting)
            if process.waiting >= AHEAD:
                return
            message, result = self._waiting.popleft()
            if not result.done():  # else it was cancelled
                process.submit(message, result)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a pool of worker processes cannot be pickled or copied: make another")

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
