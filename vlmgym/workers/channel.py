"""Messages between two processes over a socket, with timeouts.

Pipes of `multiprocessing` apply a timeout only to the first byte of a message, so a process that stops reading or
writing in the middle of a message would block its peer forever.
"""

from __future__ import annotations

import pickle
import socket
import struct
import time
from typing import Any

UNPICKLABLE = (pickle.PicklingError, TypeError, AttributeError)
"""Exceptions that pickle raises for unpicklable objects."""
CHUNK = 2**18
"""Maximum bytes per read."""
_LENGTH = struct.Struct("!Q")


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
