"""A thread that runs a user's functions, plain or async, and does not keep the program from ending if one hangs."""

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
    """Runs one call after another. All coroutines run in one event loop, so that clients that keep connections work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] | None = None

    def call(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Begin a call from a running event loop; the future gets what it returns, awaited if need be, or raises."""
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
            if not loop.is_closed():  # after a time-out nobody waits for the result any more
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
            # SystemExit, CancelledError and the like would end the thread, or the program, without a word, and a
            # future refuses StopIteration.
            if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
                error = raised
            else:
                error = RuntimeError(f"{type(raised).__name__}: {raised}")
        finish(result, error)
        del job, function, args, finish, result, error  # else they live until the next call
    loop.close()


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
