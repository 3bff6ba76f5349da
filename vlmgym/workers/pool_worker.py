"""A worker process that is called from an event loop, without threads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from vlmgym.errors import WorkerError
from vlmgym.workers.channel import ChannelClosed
from vlmgym.workers.messages import read_result
from vlmgym.workers.process import WorkerProcess

P = ParamSpec("P")
T = TypeVar("T")
Future = asyncio.Future[Any]

GRACE = 0.2
"""Seconds between the death of a process and the failure of its calls. If a signal was sent to the whole process group
(such as a job scheduler's SIGTERM), the parent is interrupted within this time instead."""


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
        self._process = WorkerProcess(_make_handler)
        self._channel = self._process.channel

    @property
    def pending(self) -> int:
        """Number of calls without a result."""
        return len(self._calls)

    def pack(self, function: Callable[P, T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Pickle a call for `submit`.

        Raises:
            UsageError: The call cannot be pickled.
        """
        return self._process.pack(function, args, kwargs)

    def submit(self, packed: bytes, future: Future) -> None:
        """Send a call from a running event loop.

        Args:
            packed: Result of `pack`.
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
        """Cancel pending calls, and let the process exit after its current call."""
        self._unregister()
        self._channel.close()
        for future in self._calls:
            cancel(future)

    def join(self, timeout: float) -> None:
        """Wait for the process after `shut_down`, and kill it after `timeout` seconds."""
        self._process.close(timeout)

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
                _settle(future, response)
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


def _settle(future: Future, response: bytes) -> None:
    result = read_result(response)
    if result.error is None:
        future.set_result(result.value)
    else:
        future.set_exception(result.error)


def _make_handler() -> Callable[..., Any]:
    return _call


def _call(function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    return function(*args, **kwargs)
