"""A process that calls functions for an event loop, without threads in between."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import pickle
import socket
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from vlmgym.errors import UsageError, WorkerError
from vlmgym.workers.channel import Channel, ChannelClosed
from vlmgym.workers.process import block_sigint, exit_with_parent

Result = asyncio.Future[Any]

PART = 2**18
"""Bytes that are read at once, at most."""
GRACE = 0.2
"""Seconds after the end of the process until its calls fail: a signal that ended it may have been for the whole group
of processes (SIGTERM of a scheduler), and then the parent's own interrupt says more."""


class WorkerProcess:
    """Calls functions, one after another in the order of `submit`; serves one event loop at a time.

    It is spawned, not forked, so that threads and accelerators of the parent do not matter. It ignores Ctrl-C, which
    the parent handles, and ends by itself when the parent is gone.
    """

    def __init__(self, on_answer: Callable[[], None]) -> None:
        """Start the process.

        Args:
            on_answer: Called after each answer, and when the process has died.
        """
        self._on_answer = on_answer
        self._calls: deque[Result] = deque()
        self._unsent, self._received = bytearray(), bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._died: WorkerError | None = None
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True, name="vlmgym worker")
        with theirs, contextlib.ExitStack() as if_it_fails:
            if_it_fails.enter_context(self._socket)
            with block_sigint():
                self._process.start()
            if_it_fails.pop_all()

    @property
    def waiting(self) -> int:
        """Calls that were submitted and are not answered."""
        return len(self._calls)

    def submit(self, message: bytes, result: Result) -> None:
        """Call a function from a running event loop.

        Args:
            message: A packed tuple of the function, its positional and its keyword arguments.
            result: Gets what it returns or raises; `WorkerError` if the process dies.
        """
        if self._died is not None:
            result.set_exception(self._died)
            return
        self._calls.append(result)
        self._unsent += message
        self.listen()
        if self._unsent:
            self._write()

    def listen(self) -> None:
        """Let the running event loop hear of answers that are still to come, also of calls of one that is over."""
        loop = asyncio.get_running_loop()
        if self._calls and self._loop is not loop:
            self._loop = loop
            loop.add_reader(self._socket, self._read)
            self._write()

    def hang_up(self) -> None:
        """Cancel what is not answered, and let the process end when it is done with its call."""
        self._rest()
        self._socket.close()
        for result in self._calls:
            cancel(result)

    def join(self, timeout: float) -> None:
        """Wait so many seconds for the end of the process after `hang_up`, then end it by force."""
        self._process.join(timeout)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _write(self) -> None:
        assert self._loop is not None
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self._unsent.clear()  # it has died, as `_read` will find
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            part = self._socket.recv(PART)
        except ConnectionResetError:
            part = b""
        if not part:
            assert self._loop is not None
            self._loop.call_later(GRACE, self._fail)
            return self._rest()
        self._received += part
        for answer in Channel.split(self._received):
            result = self._calls.popleft()
            if not result.done():  # else nobody waits for it any more
                _settle(result, answer)
            self._on_answer()
        return self._rest() if not self._calls else None

    def _rest(self) -> None:
        """Leave the event loop, which may end before the next call."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._loop = None

    def _fail(self) -> None:
        self._died = WorkerError(
            "a worker process died; if memory ran out, use fewer --workers; in a script of your own, call evaluate "
            'under `if __name__ == "__main__":`'
        )
        while self._calls:
            result = self._calls.popleft()
            if not result.done():
                result.set_exception(self._died)
        self._on_answer()


def cancel(result: Result) -> None:
    """Let nobody wait for it any more; an event loop that is over waits for nothing."""
    if not result.get_loop().is_closed():
        result.cancel()


def _settle(result: Result, answer: bytes) -> None:
    """Give a call's result what `_answer` packed."""
    try:
        value, error, trace = pickle.loads(answer)
    except Exception as unreadable:  # a value of a game's own may be one that can be sent and not be read
        told = f"{type(unreadable).__name__}: {unreadable}"
        value, error, trace = None, WorkerError(f"the answer of a worker process cannot be read: {told}"), ""
    if error is None:
        result.set_result(value)
    else:
        error.__cause__ = _InWorker(trace)
        result.set_exception(error)


def unsendable(error: Exception) -> UsageError:
    """What to raise when a call cannot be pickled, or not be unpickled in the process."""
    told = f"{type(error).__name__}: {error}"
    return UsageError(f"an object cannot be sent to a worker process ({told}): define it in a module, or use workers=0")


class _InWorker(Exception):
    """Where an error was raised: a traceback of another process, in words."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _serve(end: socket.socket) -> None:
    """Answer calls until the parent closes its end."""
    exit_with_parent()
    gc.freeze()  # what was imported stays, and need not be looked through for garbage again and again
    channel = Channel(end)
    with contextlib.suppress(ChannelClosed):
        while True:
            channel.send(_answer(channel.receive_packed()))


def _answer(call: bytearray) -> bytes:
    """What a call returns or raises, as a message."""
    try:
        function, args, kwargs = pickle.loads(call)
    except Exception as error:  # a class of `__main__` in a notebook, or whatever a class of the user's own raises
        return Channel.pack((None, unsendable(error), traceback.format_exc()))
    try:
        return Channel.pack((function(*args, **kwargs), None, ""))
    except Exception as error:
        trace = traceback.format_exc()
        if not isinstance(error, StopIteration):  # which a future does not take
            with contextlib.suppress(Exception):  # an error of a game's own may be one that cannot be sent or read
                message = Channel.pack((None, error, trace))
                pickle.loads(pickle.dumps(error))
                return message
        return Channel.pack((None, WorkerError(f"a worker process raised {type(error).__name__}: {error}"), trace))
