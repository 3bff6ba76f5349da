"""Location and number of worker processes."""

from __future__ import annotations

import multiprocessing
import os
from typing import Literal, get_args

from vlmgym.checks import check_int
from vlmgym.errors import UsageError, short_repr

Backend = Literal["process", "ray"]
"""Location of worker processes: this machine or a Ray cluster."""
WORKERS_PER_CORE = 8
"""Maximum workers per core; more only cost memory and startup time."""


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_num_workers(name: str, num_workers: object, backend: object = "process") -> None:
    """Check a number of workers, which may be None, and the backend.

    Workers of a Ray cluster are limited by its CPUs instead; see `vlmgym.workers.ray`.

    Args:
        name: Name of the parameter.
        num_workers: Number of workers, or None.
        backend: Location of the workers.

    Raises:
        UsageError: The number or the backend is invalid.
    """
    if not isinstance(backend, str) or backend not in get_args(Backend):
        raise UsageError(f"backend must be one of {', '.join(get_args(Backend))}, got {short_repr(backend)}")
    check_int(name, num_workers, 0, optional=True)
    maximum = WORKERS_PER_CORE * available_cores()
    if backend == "process" and isinstance(num_workers, int) and num_workers > maximum:
        limit = f"{maximum} on this machine ({WORKERS_PER_CORE} per core)"
        raise UsageError(f"{name} must be at most {limit}, got {num_workers}")
    if backend == "process" and num_workers and multiprocessing.current_process().daemon:
        raise UsageError(f"{name} must be 0 in a daemonic process, which cannot start others, got {num_workers}")


def num_workers_for(num_tasks: int, num_workers: int | None) -> int:
    """Return the requested number of workers, by default one per core, but at most one per task.

    The default is 0 in a daemonic process, such as a worker of `multiprocessing.Pool`, which cannot start others.
    """
    default = 0 if multiprocessing.current_process().daemon else available_cores()
    return min(default if num_workers is None else num_workers, num_tasks)
