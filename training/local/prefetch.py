"""Prefetching: a worker process computes the next item while this process uses the last one."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from vlmgym.workers.process import block_sigint, exit_with_parent

T = TypeVar("T")
MIN_ITEMS = 20
"""With fewer items, all are computed before a worker process has started."""
_compute: Callable[[int], Any]
"""The function of this worker process."""


@contextmanager
def prefetch(compute: Callable[[int], T], count: int) -> Iterator[Iterator[T]]:
    """Iterate over `compute(0)` to `compute(count - 1)`, one item ahead as soon as the worker process has started.

    Items are computed in this process until then, and, after a warning, if the worker process fails. `compute` must be
    picklable, and its result must depend on its argument alone.
    """
    if count <= MIN_ITEMS:
        yield map(compute, range(count))
        return
    executor = ProcessPoolExecutor(1, get_context("spawn"), exit_with_parent)
    try:
        yield _items(executor, compute, count)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _items(executor: ProcessPoolExecutor, compute: Callable[[int], T], count: int) -> Iterator[T]:
    ready: Future[Any] = Future()
    pending: Future[T] | None = None
    try:
        with block_sigint():
            ready = executor.submit(_load, pickle.dumps(compute))
    except Exception as error:  # pickling may raise anything
        ready.set_exception(error)
    for number in range(count):
        items: list[T] = []
        try:
            if ready.done():
                ready.result()
                items.append((pending or executor.submit(_call, number)).result())
                if number + 1 < count:
                    pending = executor.submit(_call, number + 1)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            warnings.warn(f"prefetching failed, which slows training down ({reason})", RuntimeWarning, stacklevel=2)
            ready = Future()  # compute the rest here
        yield items[0] if items else compute(number)


def _load(data: bytes) -> None:
    global _compute
    _compute = pickle.loads(data)


def _call(number: int) -> Any:
    return _compute(number)
