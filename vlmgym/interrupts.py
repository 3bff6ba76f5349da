"""Handling of Ctrl-C, SIGTERM and SIGHUP in commands, from the first import to the exit."""

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
    """Make Ctrl-C kill a vlmgym command without a traceback, until `interruptible` takes over.

    Otherwise, a `KeyboardInterrupt` during imports would print a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def is_command() -> bool:
    """Return whether this program is a vlmgym command rather than one that imports vlmgym."""
    program = Path(sys.argv[0])
    if program.name == "-m":  # argv[0] while Python imports the parent packages of the module to run
        return "vlmgym" in sys.orig_argv
    return program.name == "vlmgym" or program.resolve().parent == SCRIPTS


class InterruptHandler:
    """A signal handler that acts like Ctrl-C and records the signals."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Invoke the handler of SIGINT, or raise `KeyboardInterrupt` if SIGINT is ignored."""
        self.received.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # shell scripts start background commands this way
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)


@contextmanager
def interruptible() -> Iterator[Sequence[int]]:
    """Raise `KeyboardInterrupt` on Ctrl-C, SIGTERM (a preempted job) and SIGHUP (a closed terminal).

    Yields:
        The SIGTERM and SIGHUP signals received so far, in order.
    """
    end = InterruptHandler()
    handlers: dict[int, Callable[[int, FrameType | None], None]]
    handlers = {signal.SIGTERM: end, signal.SIGHUP: end, signal.SIGINT: signal.default_int_handler}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    # Ignored signals stay ignored, as nohup requires.
    handlers = {number: handler for number, handler in handlers.items() if signal.getsignal(number) is signal.SIG_DFL}
    report_unraisable, sys.unraisablehook = sys.unraisablehook, _interrupt_again
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        yield end.received
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)
        sys.unraisablehook = report_unraisable


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Resend an interrupt that Python discards because it was raised in a finalizer or a weak reference callback."""
    if unraisable.exc_type is KeyboardInterrupt:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT)).start()  # here it would be discarded again
    else:
        sys.__unraisablehook__(unraisable)


@contextmanager
def defer_interrupts(cancel: Callable[[], None]) -> Iterator[Sequence[int]]:
    """Call `cancel` on the first interrupt, and raise `KeyboardInterrupt` at the end of the block.

    If `KeyboardInterrupt` were raised inside an asyncio task, the task would stay unfinished and a traceback would be
    logged. A second Ctrl-C raises it immediately.

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
