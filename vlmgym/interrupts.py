"""Ctrl-C and the signals that end a command like it, from its first import to its exit."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SCRIPTS = Path(__file__).resolve().parent / "test"


def exit_quietly_during_imports() -> None:
    """Let Ctrl-C end a command of vlmgym at once until `interruptible`; programs that import vlmgym are left alone.

    A `KeyboardInterrupt` inside an import always ends in a traceback.
    """
    if _is_command(Path(sys.argv[0])) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _is_command(program: Path) -> bool:
    if program.name == "-m":  # until the module is found, which is after its packages are imported
        return "vlmgym" in sys.orig_argv
    return program.name == "vlmgym" or program.resolve().parent == SCRIPTS


class InterruptHandler:
    """A signal handler that ends the program as Ctrl-C does."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt`, or let the handler of Ctrl-C act."""
        self.received.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's script starts commands that end with & so
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)


@contextmanager
def interruptible() -> Iterator[Sequence[int]]:
    """Raise `KeyboardInterrupt` on Ctrl-C, on SIGTERM (a preempted job) and on SIGHUP (a closed session).

    Yields:
        The signals other than Ctrl-C that were received, in their order.
    """
    end = InterruptHandler()
    handlers: dict[int, Callable[[int, FrameType | None], None]]
    handlers = {signal.SIGTERM: end, signal.SIGHUP: end, signal.SIGINT: signal.default_int_handler}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    # Those that are ignored stay so, as by nohup.
    handlers = {number: handler for number, handler in handlers.items() if signal.getsignal(number) is signal.SIG_DFL}
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        yield end.received
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def defer_interrupts(cancel: Callable[[], None]) -> Iterator[Sequence[int]]:
    """Call `cancel` when an interrupt is received, and raise `KeyboardInterrupt` at the end of the block.

    Raised in the middle of an asyncio task, it would leave the task half done and its traceback in the log. Only a
    second Ctrl-C is raised at once.

    Yields:
        The signals received so far.
    """
    received: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in received:
            raise KeyboardInterrupt
        received.append(number)
        if len(received) == 1:
            cancel()

    handled = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if handler is signal.default_int_handler or isinstance(handler, InterruptHandler):
                handled[number] = signal.signal(number, defer)
    try:
        yield received
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])
