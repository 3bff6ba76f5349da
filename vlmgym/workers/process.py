"""Start, call and stop worker processes, which ignore Ctrl-C and never outlive their parent."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any, Protocol

from vlmgym.errors import WorkerError
from vlmgym.workers.channel import UNPICKLABLE, Channel, ChannelClosed
from vlmgym.workers.messages import Handler, Result, handle, read_result, unsendable

RESTARTS = 3
"""Maximum number of restarts of a worker during the same call."""


class Worker(Protocol):
    """A worker that handles calls in order: a `WorkerProcess`, or a `RayWorker` on a cluster."""

    @property
    def name(self) -> str:
        """Name for messages."""

    def pack(self, *args: Any) -> bytes:
        """Pickle the arguments of a call for `send`.

        Raises:
            UsageError: The arguments cannot be pickled.
        """

    def send(self, packed: bytes, timeout: float | None) -> None:
        """Send a call.

        Raises:
            TimeoutError: The worker did not read the call in time.
            ChannelClosed: The worker died.
        """

    def receive(self, timeout: float | None) -> Result:
        """Wait for the result of the oldest call.

        Raises:
            TimeoutError: The worker did not respond in time.
            ChannelClosed: The worker died.
        """

    def fileno(self) -> int:
        """Return a file descriptor that is readable when a result is available or the worker died."""

    def exit_status(self) -> str:
        """Describe how a dead worker ended."""

    def close(self) -> None:
        """Stop the worker; kill it if it is busy. Idempotent."""


def receive_value(worker: Worker) -> Any:
    """Wait for the oldest call of a worker, and return its value or raise its error.

    Raises:
        WorkerError: The worker died.
    """
    try:
        result = worker.receive(None)
    except ChannelClosed as error:
        raise WorkerError(f"{worker.name} died ({worker.exit_status()})") from error
    return result.get()


class WorkerProcess:
    """A spawned process that handles calls.

    The process is spawned rather than forked, so that threads and accelerators of the parent do not affect it. It
    ignores Ctrl-C and exits with its parent, however the parent ends.

    Attributes:
        process: The process.
        channel: Channel to the process; event loops use its non-blocking reads and writes.
    """

    def __init__(self, make_handler: Callable[..., Handler], *args: Any, name: str = "vlmgym worker") -> None:
        """Start the process without waiting for it.

        Args:
            make_handler: Picklable function that is called in the process with `args`, and returns the function that
                handles calls.
            args: Arguments of `make_handler`: picklable objects, or resources such as `SharedArray` that can be sent to
                a process while it is spawned.
            name: Name of the process.
        """
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_serve, args=(theirs, make_handler, args), daemon=True, name=name)
        with theirs, contextlib.ExitStack() as on_error:
            on_error.callback(self.channel.close)
            with block_sigint():
                self.process.start()
            on_error.pop_all()

    @property
    def name(self) -> str:
        """See `Worker.name`."""
        return f"worker process {self.process.pid}"

    def pack(self, *args: Any) -> bytes:
        """See `Worker.pack`."""
        try:
            return Channel.pack(args)
        except UNPICKLABLE as error:
            raise unsendable(error) from error

    def send(self, packed: bytes, timeout: float | None = None) -> None:
        """See `Worker.send`."""
        self.channel.send(packed, timeout)

    def receive(self, timeout: float | None = None) -> Result:
        """See `Worker.receive`."""
        return read_result(self.channel.receive_packed(timeout))

    def fileno(self) -> int:
        """See `Worker.fileno`."""
        return self.channel.fileno()

    def exit_status(self) -> str:
        """See `Worker.exit_status`."""
        self.process.join()
        return f"exit code {self.process.exitcode}"

    def close(self, timeout: float = 0.5) -> None:
        """Close the channel, and kill the process if it has not exited after `timeout` seconds. Idempotent."""
        self.channel.close()
        self.process.join(timeout)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(end: socket.socket, make_handler: Callable[..., Handler], args: tuple[Any, ...]) -> None:
    """Handle calls until the parent closes its end."""
    exit_with_parent()
    gc.freeze()  # imported objects are permanent, so the garbage collector need not scan them
    channel, handler = Channel(end), make_handler(*args)
    with contextlib.suppress(ChannelClosed):
        while True:
            channel.send(handle(handler, channel.receive_packed(), Channel.pack))


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
