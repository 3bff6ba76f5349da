"""Data that a process of its own draws, while the model learns from what was drawn before."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as numbers_from
from multiprocessing.connection import wait
from typing import Any, Generic, TypeVar

from vlmgym.workers.channel import Channel, ChannelClosed

T = TypeVar("T")
FEW = 20
"""Of so few draws none would come from a process: before it is ready, it imports what it draws with."""
PATIENCE = 600.0
"""Seconds after which a process that does not answer is given up."""
PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from training.local.ahead import serve; serve(int(sys.argv[1]))"
"""What the process runs: neither a copy of this one nor a script's main part, and the modules of this one."""


@contextmanager
def drawn_ahead(draw: Callable[[int], T], count: int) -> Iterator[Iterator[T]]:
    """`draw(0)` to `draw(count - 1)`, of which another process draws one ahead as soon as it is ready.

    The process only helps: what it has not drawn is drawn here, because it is not ready, or could not be started, or
    died, or because drawing fails, which is raised here then. To be of help, `draw` and what it returns must be such as
    can be pickled, and of modules, not of a script or a notebook. A warning says why there is no help.

    Args:
        draw: What it returns depends on the number alone.
        count: How many.
    """
    if count <= FEW:
        yield map(draw, range(count))
        return
    helper: _Helper[T] = _Helper(draw)
    try:
        yield (draw(number) if (there := helper.drawn(number)) is None else there[0] for number in range(count))
    finally:
        helper.close()


class _Helper(Generic[T]):
    """The process, until it is given up."""

    def __init__(self, draw: Callable[[int], T]) -> None:
        self._channel: Channel | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._asked = False
        try:
            self._start(Channel.pack(pickle.dumps(draw)))
        except Exception as error:  # an object's own way to be pickled may raise whatever it likes
            self._give_up(error)
        except BaseException:
            self.close()
            raise

    def drawn(self, number: int) -> tuple[T] | None:
        """What it drew; None, where that has to be drawn here. Once it draws, numbers come one after the other."""
        if self._channel is None:
            return None
        try:
            if not self._asked:
                if not wait([self._channel.fileno()], 0):
                    return None
                self._channel.receive(PATIENCE)  # that it is ready
                self._channel.send(Channel.pack(number), PATIENCE)
                self._asked = True
            return (self._channel.receive(PATIENCE),)
        except Exception as error:  # likewise to be unpickled
            self._give_up(error)
            return None

    def close(self) -> None:
        """End it; doing it twice is fine."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self, packed: bytes) -> None:
        ours, theirs = socket.socketpair()
        self._channel, nothing = Channel(ours), subprocess.DEVNULL
        paths = (path for path in sys.path if isinstance(path, str))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), *paths],
                pass_fds=(theirs.fileno(),),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,  # what fails there is done again here
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        self._channel.send(packed, PATIENCE)

    def _give_up(self, error: Exception) -> None:
        self.close()
        told = "the process is gone" if isinstance(error, ChannelClosed) else f"{type(error).__name__}: {error}"
        warnings.warn(f"no process draws ahead from now on, which is slower ({told})", RuntimeWarning, stacklevel=2)


def serve(end: int) -> None:
    """Draw from a number on, until nobody listens.

    Args:
        end: Of a socket, at whose other end there is a `_Helper`.
    """
    channel = Channel(socket.socket(fileno=end))
    try:
        draw: Callable[[int], Any] = pickle.loads(channel.receive())
        channel.send(Channel.pack(None))
        for number in numbers_from(channel.receive()):
            channel.send(Channel.pack(draw(number)))
    except ChannelClosed:
        pass  # whoever asked is done, or gone
