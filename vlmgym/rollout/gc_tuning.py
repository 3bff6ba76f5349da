"""Looking for garbage less often while many requests are under way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 50_000
"""Objects that are made between two looks, in place of Python's 700 (2,000 since 3.12)."""


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Let Python look for reference cycles rarely: what a request needs is freed without that.

    With 64 requests at once it is otherwise about 8% of the time of a run (`benchmarks/concurrency.py`).
    """
    before = gc.get_threshold()
    if before[0]:  # else it is switched off
        gc.set_threshold(max(ALLOCATIONS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
