"""Data that a process of its own draws, while the model learns from what was drawn before.

python -m training.local.ahead SOCKET      # that process, which `drawn_ahead` starts
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as numbers_from
from typing import Any, Generic, TypeVar

from vlmgym.sandbox.channel import UNPICKLABLE, Channel, ChannelClosed

T = TypeVar("T")
FEW = 100
"""Of so few draws none would come from a process: before it is ready, it imports what it draws with."""


@contextmanager
def drawn_ahead(draw: Callable[[int], T], count: int) -> Iterator[Iterator[T]]:
    """`draw(0)` to `draw(count - 1)`, of which another process draws one ahead as soon as it is ready.

    The process only helps: what it has not drawn is drawn here, because it is not ready, or died, or could not be
    started, or because drawing fails, which is raised here then. To be of help, `draw` and what it returns must be such
    as can be pickled, and of modules, not of a script or a notebook.

    Args:
        draw: What it returns depends on the number alone.
        count: How many.
    """
    try:
        packed = Channel.pack(pickle.dumps(draw)) if count > FEW and os.name == "posix" else None
    except UNPICKLABLE:
        packed = None
    if packed is None:
        yield map(draw, range(count))
        return
    helper: _Helper[T] = _Helper(packed)
    try:
        yield (draw(number) if (there := helper.drawn(number)) is None else there[0] for number in range(count))
    finally:
        helper.close()


class _Helper(Generic[T]):
    """The process. It is no copy of this one, so that neither a script's main part nor accelerators matter."""

    def __init__(self, packed: bytes) -> None:
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        self._asked = self._gone = False
        nothing = subprocess.DEVNULL
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                pass_fds=(theirs.fileno(),),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,  # what fails there is done again here
                start_new_session=True,  # Ctrl-C is for this process alone
            )
        try:
            self._channel.send(packed)
        except ChannelClosed:
            self._gone = True

    def drawn(self, number: int) -> tuple[T] | None:
        """What it drew; None, where that has to be drawn here. Once it draws, numbers come one after the other."""
        if self._gone or not (self._asked or select.select([self._channel], [], [], 0)[0]):
            return None
        try:
            if not self._asked:
                self._channel.receive()  # that it is ready
                self._channel.send(Channel.pack(number))
                self._asked = True
            return (self._channel.receive(),)
        except Exception:  # it died, or an object's own way to be unpickled raises
            self._gone = True
            return None

    def close(self) -> None:
        """End it."""
        self._channel.close()
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Draw from a number on, until nobody listens."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    try:
        draw: Callable[[int], Any] = pickle.loads(channel.receive())
        channel.send(Channel.pack(None))
        for number in numbers_from(channel.receive()):
            channel.send(Channel.pack(draw(number)))
    except ChannelClosed:
        pass  # whoever asked is done, or gone


if __name__ == "__main__":
    main()
