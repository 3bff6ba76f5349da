"""A daemon thread for blocking or user-defined functions; a hanging call does not block exit."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[..., Any], tuple[Any, ...], Callable[[Any, Exception | None], None]]


class DaemonThread:
    """Runs calls in order. All coroutines share an event loop, so that clients can keep connections open."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] | None = None

    def call(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call a sync or async function; returns a future of the running event loop."""
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), daemon=True, name=self._name).start()
            weakref.finalize(self, self._jobs.put, None)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def finish(result: Any, error: Exception | None) -> None:
            if not loop.is_closed():  # it may be after a timeout
                loop.call_soon_threadsafe(settle, result, error)

        self._jobs.put((function, args, finish))
        return future


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    loop = asyncio.new_event_loop()
    while (job := jobs.get()) is not None:
        function, args, finish = job
        result, error = None, None  # type: Any, Exception | None
        try:
            result = function(*args)
            if inspect.isawaitable(result):
                result = loop.run_until_complete(_awaited(result))
        except BaseException as raised:
            # SystemExit and CancelledError would silently end the thread; futures reject StopIteration.
            if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
                error = raised
            else:
                error = RuntimeError(f"{type(raised).__name__}: {raised}")
        finish(result, error)
        del job, function, args, finish, result, error  # otherwise kept alive until the next call
    loop.close()


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
