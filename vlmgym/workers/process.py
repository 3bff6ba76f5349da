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
from typing import Literal, get_args

from vlmgym.checks import check_int
from vlmgym.errors import UsageError, short_repr

Backend = Literal["process", "ray"]
"""Where worker processes are: on this machine, or on those of a Ray cluster."""


WORKERS_PER_CORE = 8
"""More worker processes than this only take memory and time to start."""


RESTARTS = 3
"""How often in a row a process may die over the same call."""


def available_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_num_workers(name: str, asked: object, backend: object = "process") -> None:
    """Refuse what is no backend, and no number of worker processes for it; None is the default number.

    A Ray cluster has its own limit, its processors.

    Args:
        name: What the user calls the number.
        asked: The number.
        backend: Where the processes are.

    Raises:
        UsageError: One of them is not accepted.
    """
    if not isinstance(backend, str) or backend not in get_args(Backend):
        raise UsageError(f"backend is one of {', '.join(get_args(Backend))}, not {short_repr(backend)}")
    check_int(name, asked, 0, optional=True)
    most = WORKERS_PER_CORE * available_cores()
    if backend == "process" and isinstance(asked, int) and asked > most:
        raise UsageError(f"{name} is at most {most} on this machine, {WORKERS_PER_CORE} per core, not {asked}")


def num_workers_for(tasks: int, asked: int | None) -> int:
    """As many workers as were asked for, by default one per core, and no more than tasks."""
    return min(available_cores() if asked is None else asked, tasks)


@contextmanager
def block_sigint() -> Iterator[None]:
    """Processes started in here hear no Ctrl-C, from their first moment; they must call `exit_with_parent`.

    The parent hears one that comes meanwhile at the end.
    """
    resource_tracker.ensure_running()  # its start, which that of a first process includes, would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_with_parent() -> None:
    """Call first in a worker process: ignore Ctrl-C, and end when the parent is gone, however it went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see `block_sigint`
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent_sentinel: int) -> None:
    wait([parent_sentinel])
    os._exit(1)
