"""A pool of worker processes that lives no longer than its parent."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import ParamSpec, TypeVar

from vlmgym.errors import UsageError, WorkerError
from vlmgym.sandbox.processes import available_cores, interrupts_left_to_parent, live_with_parent

P = ParamSpec("P")
T = TypeVar("T")


def check_workers(count: int | None) -> None:
    """Refuse a number of workers that is none; None stands for one per core.

    Raises:
        UsageError: It is not a whole number of at least 0.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise UsageError(f"workers is a whole number of at least 0, not {count!r}")


def workers_for(episodes: int, asked: int | None) -> int:
    """As many workers as were asked for, by default one per core and no more than episodes."""
    return min(available_cores(), episodes) if asked is None else asked


class Workers:
    """Calls functions in worker processes, or in this one if there are none.

    Workers are spawned, not forked, so that threads and accelerators of the parent do not matter. They ignore Ctrl-C,
    which the parent handles, and end by themselves when the parent is gone.
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
        self._pool = None
        if count:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(count, mp_context=context, initializer=live_with_parent)
            with interrupts_left_to_parent():
                self._pool.submit(os.getpid)  # the first call starts all processes

    async def start(self) -> None:
        """Wait until all processes run, so that what follows is not slowed by their start."""
        # The executor adds a process whenever a call finds none idle; a nap keeps each busy until all are there.
        await asyncio.gather(*(self.call(time.sleep, 0.01) for _ in range(self.count)))

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result.

        Raises:
            WorkerError: A worker died, for instance of a lack of memory.
        """
        if self._pool is None:
            return function(*args, **kwargs)
        try:
            return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))
        except BrokenProcessPool as error:
            raise WorkerError(
                "a worker process died; if memory ran out, use fewer --workers; in a script of your own, call evaluate "
                'under `if __name__ == "__main__":`'
            ) from error

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
