"""Run coroutines from synchronous code, with less frequent garbage collection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from vlmgym.interrupts import defer_interrupts

T = TypeVar("T")

ALLOCATIONS = 50_000
"""Allocations between two garbage collections; Python's default is 700 to 2,000, depending on the version."""


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, even inside a running event loop (a notebook). An interrupt cancels the coroutine."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = []

    async def cancellable() -> T:
        task: asyncio.Task[T] | None = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        if received:
            task.cancel()
        return await work

    def cancel() -> None:
        for loop, task in running:
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

    with defer_interrupts(cancel) as received:
        if not _loop_is_running():
            return asyncio.run(cancellable())
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, cancellable()).result()


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently; if one fails, cancel the others, wait for them and raise its error."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect reference cycles less often; requests create almost none.

    With 64 concurrent requests, Python's default costs about 8% of the run time (`benchmarks/concurrency.py`).
    """
    before = gc.get_threshold()
    if before[0]:  # 0: disabled
        gc.set_threshold(max(ALLOCATIONS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
