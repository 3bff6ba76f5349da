"""A daemon thread for blocking or user-defined functions; a hanging call does not block exit."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_Job = tuple[Callable[..., Any], tuple[Any, ...], Future[Any]]


class DaemonThread:
    """Runs calls one after another. All coroutines share an event loop, so that clients can keep connections open."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] | None = None

    def call(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call a sync or async function in the thread; return a future that the running event loop can await."""
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), daemon=True, name=self._name).start()
            weakref.finalize(self, self._jobs.put, None)
        future: Future[Any] = Future()
        self._jobs.put((function, args, future))
        return asyncio.wrap_future(future)


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    loop = asyncio.new_event_loop()
    while (job := jobs.get()) is not None:
        function, args, future = job
        result = None
        if future.set_running_or_notify_cancel():
            try:
                result = function(*args)
                if inspect.isawaitable(result):
                    result = loop.run_until_complete(_awaited(result))
            except BaseException as error:
                # SystemExit and CancelledError would silently end the thread; asyncio's futures reject StopIteration.
                expected = isinstance(error, Exception) and not isinstance(error, StopIteration)
                future.set_exception(error if expected else RuntimeError(f"{type(error).__name__}: {error}"))
            else:
                future.set_result(result)
        del job, function, args, future, result  # otherwise kept alive until the next call
    loop.close()


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
