"""Prefetching: a worker process computes the next item while this process uses the last one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import wait
from typing import Any, TypeVar

from vlmgym.workers.process import WorkerProcess, receive_value

T = TypeVar("T")
MIN_ITEMS = 20
"""Minimum number of items; fewer are computed before a worker process has started."""


@contextmanager
def prefetch(compute: Callable[[int], T], count: int) -> Iterator[Iterator[T]]:
    """Iterate over `compute(0)` to `compute(count - 1)`, one item ahead as soon as the worker process has started.

    Items are computed in this process until then, and, after a warning, if the worker process fails. `compute` must be
    picklable, and its result must depend on its argument alone.
    """
    if count <= MIN_ITEMS:
        yield map(compute, range(count))
        return
    try:
        worker = WorkerProcess(_make_handler, compute)
        worker.send(worker.pack(None))  # returns once the process has started
    except Exception as error:  # pickling may raise anything
        _warn(error)
        yield map(compute, range(count))
        return
    with closing(worker):
        yield _items(worker, compute, count)


def _items(worker: WorkerProcess, compute: Callable[[int], T], count: int) -> Iterator[T]:
    started = failed = False
    for number in range(count):
        items: list[T] = []
        try:
            if not (started or failed) and wait([worker.fileno()], 0):
                receive_value(worker)
                worker.send(worker.pack(number))
                started = True
            if started and not failed:
                items.append(receive_value(worker))
                if number + 1 < count:
                    worker.send(worker.pack(number + 1))
        except Exception as error:  # of the computation, or because its result cannot be read
            _warn(error)
            failed = True
        yield items[0] if items else compute(number)


def _warn(error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}"
    warnings.warn(f"prefetching failed, which slows training down ({reason})", RuntimeWarning, stacklevel=3)


def _make_handler(compute: Callable[[int], Any]) -> Callable[[int | None], Any]:
    return lambda number: None if number is None else compute(number)
