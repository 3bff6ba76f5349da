"""What worker processes have in common: they leave Ctrl-C to their parent, and live no longer than it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Literal

Backend = Literal["process", "ray"]
"""Where worker processes are: on this machine, or on those of a Ray cluster."""


def available_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def interrupts_left_to_parent() -> Iterator[None]:
    """Processes started in here hear no Ctrl-C, from their first moment; they must call `live_with_parent`.

    The parent hears one that comes meanwhile at the end.
    """
    resource_tracker.ensure_running()  # its start, which that of a first process includes, would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def live_with_parent() -> None:
    """Call first in a worker process: ignore Ctrl-C, and end when the parent is gone, however it went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see `interrupts_left_to_parent`
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent_sentinel: int) -> None:
    wait([parent_sentinel])
    os._exit(1)
