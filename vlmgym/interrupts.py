"""Ctrl-C, SIGTERM (a preempted job) and SIGHUP (a closed terminal) in commands."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptHandler:
    """A signal handler that records the signals and raises `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record the signal and raise."""
        self.received.append(number)
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Raise `KeyboardInterrupt` on each of `SIGNALS`, except ignored ones, as nohup requires.

    Yields:
        The signals received so far, in order.
    """
    handler = InterruptHandler()
    with _handling(handler, lambda present: present in (signal.SIG_DFL, signal.default_int_handler)):
        yield handler.received


def check_interrupts() -> None:
    """Raise `KeyboardInterrupt` if a signal has been received; for loops that may run for hours.

    Python discards exceptions raised in finalizers and callbacks of weak references, which torch has many of.
    """
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, InterruptHandler) and handler.received:
        raise KeyboardInterrupt


@contextmanager
def defer_interrupts(cancel: Callable[[], None]) -> Iterator[list[int]]:
    """Call `cancel` on the first interrupt, and raise `KeyboardInterrupt` at the end of the block.

    If `KeyboardInterrupt` were raised inside an asyncio task, the task would stay unfinished and a traceback would be
    logged. A second Ctrl-C raises it immediately.

    Yields:
        The signals received so far, in order.
    """
    received: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in received:
            raise KeyboardInterrupt
        received.append(number)
        if len(received) == 1:
            cancel()

    def replaceable(handler: object) -> bool:  # the handlers of other programs stay
        return handler is signal.default_int_handler or isinstance(handler, InterruptHandler)

    try:
        with _handling(defer, replaceable):
            yield received
    finally:
        if received:
            signal.raise_signal(received[0])


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], replaceable: Callable[[Any], bool]) -> Iterator[None]:
    """Handle those of `SIGNALS` whose present handler is replaceable; only the main thread can handle signals."""
    before = {number: signal.getsignal(number) for number in SIGNALS if replaceable(signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread():
        before = {}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, present in before.items():
            signal.signal(number, present)
