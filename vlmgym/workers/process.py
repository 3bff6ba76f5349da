"""Start, call and stop worker processes, which ignore Ctrl-C and never outlive their parent.

Messages between parent and worker are pickles over a socket. Pipes of `multiprocessing` apply a timeout only to the
first byte of a message, so a process that stops reading or writing in the middle of a message would block its peer
forever. An error that a call raises carries its remote traceback, and keeps its type if it can be pickled.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from vlmgym.errors import UsageError, WorkerError

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")

UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError)
"""Exceptions that pickle raises for unpicklable objects."""
CHUNK = 2**18
"""Maximum bytes per read."""
_LENGTH = struct.Struct("!Q")

Handler = Callable[..., Any]
"""Function that handles calls in a worker; it receives the arguments of a call as positional arguments."""


class ChannelClosed(Exception):
    """The other end is closed."""


class Channel:
    """One end of a channel. Messages are pickles, which is safe because both processes run the same program."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._received = bytearray()

    @staticmethod
    def pack(message: Any) -> bytes:
        """Pickle a message for `send`.

        Raises:
            UNPICKLABLE: The message cannot be pickled.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        return _LENGTH.pack(len(data)) + data

    def send(self, packed: bytes, timeout: float | None = None) -> None:
        """Send a packed message.

        Args:
            packed: Result of `pack`.
            timeout: Seconds until the message must be in the socket's buffer; None to wait forever.

        Raises:
            TimeoutError: The other end did not read in time; the channel is unusable.
            ChannelClosed: The other end is closed.
        """
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(packed)
        except (BrokenPipeError, ConnectionResetError):
            raise ChannelClosed from None

    def receive_packed(self, timeout: float | None = None) -> bytes:
        """Wait for a message and return its pickle.

        Raises:
            TimeoutError: The whole message did not arrive in time; the channel is unusable.
            ChannelClosed: The other end is closed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (message := self._next_message()) is None:
            # A timeout of 0 would make the socket non-blocking, so that it raises BlockingIOError, not TimeoutError.
            self._socket.settimeout(None if deadline is None else max(1e-3, deadline - time.monotonic()))
            self._read()
        return message

    def send_available(self, data: bytearray) -> None:
        """Send as many bytes as possible without blocking, and remove them from `data`.

        Raises:
            ChannelClosed: The other end is closed.
        """
        try:
            del data[: self._socket.send(data, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            raise ChannelClosed from None

    def receive_available(self) -> list[bytes]:
        """Read up to `CHUNK` bytes without blocking and return the pickles of the messages that are complete.

        Call it only when the socket is readable.

        Raises:
            ChannelClosed: The other end is closed.
        """
        self._read(socket.MSG_DONTWAIT)
        return [*iter(self._next_message, None)]

    def fileno(self) -> int:
        """Return the file descriptor, for `multiprocessing.connection.wait` and event loops."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end. Idempotent."""
        self._socket.close()

    def _read(self, flags: int = 0) -> None:
        try:
            chunk = self._socket.recv(CHUNK, flags)
        except ConnectionResetError:
            raise ChannelClosed from None
        if not chunk:
            raise ChannelClosed
        self._received += chunk

    def _next_message(self) -> bytes | None:
        """Remove the first message from the received bytes and return its pickle; None if it is not complete."""
        if len(self._received) < _LENGTH.size:
            return None
        end = _LENGTH.size + int(_LENGTH.unpack_from(self._received)[0])
        if len(self._received) < end:
            return None
        message = bytes(memoryview(self._received)[_LENGTH.size : end])
        del self._received[:end]
        return message


class Result(NamedTuple):
    """Return value of a call, or the error that it raised."""

    value: Any
    error: Exception | None

    def get(self) -> Any:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class RemoteTraceback(Exception):
    """Cause of an error that was raised in a worker: its traceback as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def handle(handler: Handler, message: bytes) -> bytes:
    """Call a handler in a worker with pickled arguments, and return the packed response."""
    try:
        args = pickle.loads(message)
    except Exception as error:  # `__main__` lacks a notebook's class, or a user's `__setstate__` raises anything
        return Channel.pack((None, unsendable(error), traceback.format_exc()))
    try:
        value = handler(*args)
    except Exception as error:
        return _pack_error(error)
    try:
        return Channel.pack((value, None, ""))
    except Exception as error:
        return Channel.pack((None, UsageError(f"a worker cannot return its result: {_describe(error)}"), ""))


def read_result(response: bytes) -> Result:
    """Unpickle the response to a call."""
    try:
        value, error, trace = pickle.loads(response)
    except Exception as failure:
        return Result(None, WorkerError(f"cannot read the result of a worker: {_describe(failure)}"))
    if error is not None and trace:
        error.__cause__ = RemoteTraceback(trace)
    return Result(value, error)


def unsendable(error: Exception) -> UsageError:
    """Return the error for a call that cannot be pickled, or cannot be unpickled in the worker."""
    advice = "define its class or function in a module, or use no worker processes"
    return UsageError(f"cannot send an object to a worker ({_describe(error)}): {advice}")


def _pack_error(error: Exception) -> bytes:
    trace = traceback.format_exc()
    if not isinstance(error, StopIteration):  # futures reject it
        with contextlib.suppress(Exception):  # the error itself may not be picklable
            pickle.loads(pickle.dumps(error))
            return Channel.pack((None, error, trace))
    return Channel.pack((None, WorkerError(f"a worker raised {_describe(error)}"), trace))


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class WorkerProcess:
    """A spawned process that handles calls.

    The process is spawned rather than forked, so that threads and accelerators of the parent do not affect it. It
    ignores Ctrl-C and exits with its parent, however the parent ends.

    Attributes:
        process: The process.
        channel: Channel to the process; event loops use its non-blocking reads and writes.
    """

    def __init__(
        self, make_handler: Callable[..., Handler] | None = None, *args: Any, name: str = "vlmgym worker"
    ) -> None:
        """Start the process without waiting for it.

        Args:
            make_handler: Picklable function that is called in the process with `args`, and returns the function that
                handles calls. Default: calls are handled by `call_function`.
            args: Arguments of `make_handler`: picklable objects, or resources such as `SharedArray` that can be sent to
                a process while it is spawned.
            name: Name of the process.
        """
        parent_end, worker_end = socket.socketpair()
        self.channel = Channel(parent_end)
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_serve, args=(worker_end, make_handler, args), daemon=True, name=name)
        with worker_end, contextlib.ExitStack() as on_error:
            on_error.callback(self.channel.close)
            with block_sigint():
                self.process.start()
            on_error.pop_all()

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"worker process {self.process.pid}"

    def pack(self, *args: Any) -> bytes:
        """Pickle the arguments of a call for `send`.

        Raises:
            UsageError: The arguments cannot be pickled.
        """
        try:
            return Channel.pack(args)
        except UNPICKLABLE as error:
            raise unsendable(error) from error

    def send(self, packed: bytes, timeout: float | None = None) -> None:
        """Send a call.

        Raises:
            TimeoutError: The process did not read the call in time.
            ChannelClosed: The process died.
        """
        self.channel.send(packed, timeout)

    def receive(self, timeout: float | None = None) -> Result:
        """Wait for the result of the oldest call.

        Raises:
            TimeoutError: The process did not respond in time.
            ChannelClosed: The process died.
        """
        return read_result(self.channel.receive_packed(timeout))

    def fileno(self) -> int:
        """Return a file descriptor that is readable when a result is available or the process died."""
        return self.channel.fileno()

    def exit_status(self) -> str:
        """Describe how a dead process ended."""
        self.process.join()
        return f"exit code {self.process.exitcode}"

    def close(self, timeout: float = 0.5) -> None:
        """Close the channel, and kill the process if it has not exited after `timeout` seconds. Idempotent."""
        self.channel.close()
        self.process.join(timeout)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def receive_value(worker: WorkerProcess) -> Any:
    """Wait for the oldest call of a worker, and return its value or raise its error.

    Raises:
        WorkerError: The worker died.
    """
    try:
        result = worker.receive()
    except ChannelClosed as error:
        raise WorkerError(f"{worker.name} died ({worker.exit_status()})") from error
    return result.get()


class WorkerPool(ABC):
    """Calls functions in worker processes.

    Attributes:
        count: Number of processes.
    """

    count: int

    @abstractmethod
    async def start(self) -> None:
        """Wait until all processes are running."""

    @abstractmethod
    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a worker."""

    @abstractmethod
    def close(self) -> None:
        """Stop the processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def call_function(function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    """Call a function."""
    return function(*args, **kwargs)


def _serve(end: socket.socket, make_handler: Callable[..., Handler] | None, args: tuple[Any, ...]) -> None:
    """Handle calls until the parent closes its end."""
    exit_with_parent()
    gc.freeze()  # imported objects are permanent, so the garbage collector need not scan them
    channel, handler = Channel(end), call_function if make_handler is None else make_handler(*args)
    with contextlib.suppress(ChannelClosed):
        while True:
            channel.send(handle(handler, channel.receive_packed()))


@contextlib.contextmanager
def block_sigint() -> Iterator[None]:
    """Make processes that are started in this block ignore Ctrl-C from the beginning.

    The processes must call `exit_with_parent`. A Ctrl-C during the block reaches the parent when the block
    ends.
    """
    resource_tracker.ensure_running()  # starting the tracker with the first process would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def exit_with_parent() -> None:
    """Ignore Ctrl-C, and exit when the parent ends for any reason. Call this first in a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see `block_sigint`
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(parent_sentinel: int) -> None:
    wait([parent_sentinel])
    os._exit(1)
