"""Less frequent garbage collection during a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 50_000
"""Allocations between two collections, instead of Python's 700 (2,000 since 3.12)."""


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect reference cycles less often; requests create almost none.

    With 64 concurrent requests, the default takes about 8% of the run time (`benchmarks/concurrency.py`).
    """
    before = gc.get_threshold()
    if before[0]:  # 0: disabled
        gc.set_threshold(max(ALLOCATIONS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
