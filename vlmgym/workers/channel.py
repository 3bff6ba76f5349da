"""Messages between two processes, over a socket, so that neither a read nor a write waits longer than it may.

The pipes of `multiprocessing` have a time-out for the first byte of an answer only: a process that stops reading or
stops in the middle of its answer would hold up the other one for ever.
"""

from __future__ import annotations

import pickle
import socket
import struct
import time
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError)
"""What pickle raises about an object that it cannot take."""
_LENGTH = struct.Struct("!Q")


class ChannelClosed(Exception):
    """The other end is gone."""


class Channel:
    """One end. Messages are pickled objects, which only processes of one program exchange."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @staticmethod
    def pack(message: Any) -> bytes:
        """A message as `send` takes it.

        Raises:
            UNPICKLABLE: It cannot be pickled.
        """
        data = ForkingPickler.dumps(message)
        return _LENGTH.pack(len(data)) + bytes(data)

    @staticmethod
    def split(received: bytearray) -> Iterator[bytes]:
        """Take the pickles of whole messages out of bytes that were received; the rest stays."""
        while len(received) >= _LENGTH.size:
            end = _LENGTH.size + int(_LENGTH.unpack_from(received)[0])
            if len(received) < end:
                return
            message = bytes(received[_LENGTH.size : end])
            del received[:end]
            yield message

    def send(self, packed: bytes, timeout: float | None = None) -> None:
        """Send a packed message.

        Args:
            packed: What `pack` made.
            timeout: Seconds until the other end must have taken it, but for what the system keeps; None: any time.

        Raises:
            TimeoutError: It has not; the channel is of no more use.
            ChannelClosed: The other end is gone.
        """
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(packed)
        except (BrokenPipeError, ConnectionResetError):
            raise ChannelClosed from None

    def receive(self, timeout: float | None = None) -> Any:
        """Wait for a message, and read it.

        Raises:
            Exception: It cannot be read: a class in it is not known here, or its own way to be unpickled raises.
            TimeoutError, ChannelClosed: As in `receive_packed`.
        """
        return pickle.loads(self.receive_packed(timeout))

    def receive_packed(self, timeout: float | None = None) -> bytearray:
        """Wait for a message, and leave it a pickle.

        Raises:
            TimeoutError: It is not there, whole, after so many seconds; the channel is of no more use.
            ChannelClosed: The other end is gone.
        """
        until = None if timeout is None else time.monotonic() + timeout
        (length,) = _LENGTH.unpack(self._receive(_LENGTH.size, until))
        return self._receive(length, until)

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end; doing it twice is fine."""
        self._socket.close()

    def _receive(self, size: int, until: float | None) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            # A time-out of 0 would mean not to wait at all, also for what is there.
            self._socket.settimeout(None if until is None else max(1e-3, until - time.monotonic()))
            try:
                count = self._socket.recv_into(left)
            except ConnectionResetError:
                raise ChannelClosed from None
            if not count:
                raise ChannelClosed
            left = left[count:]
        return data
