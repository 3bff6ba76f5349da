"""Data that a process of its own draws, while the model learns from what was drawn before."""

from __future__ import annotations

import multiprocessing
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from training.local.errors import TrainingError
from vlmgym.sandbox.processes import interrupts_left_to_parent, live_with_parent

T = TypeVar("T")
AHEAD = 4
"""What is drawn before it is needed, at most."""
FEW = 100
"""So little is drawn before a process would have been of use."""


@contextmanager
def drawn_ahead(draw: Callable[[int], T], count: int) -> Iterator[Iterator[T]]:
    """`draw(0)` to `draw(count - 1)`: drawn here until a process that does it is ready, then there.

    Args:
        draw: What it returns depends on the number alone, and can be pickled. What cannot itself be pickled draws here.
        count: How many.

    Raises:
        TrainingError: The process died.
    """
    try:
        packed = pickle.dumps(draw) if count > FEW else None
    except (pickle.PicklingError, AttributeError, TypeError):  # a game of a class that is no module's
        packed = None
    if packed is None:
        yield map(draw, range(count))
        return
    # Spawned, not forked, so that threads and accelerators of this process do not matter.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, _begin, (packed,))
    try:
        with interrupts_left_to_parent():
            ready = pool.submit(_ready)  # it is started by this
        yield _drawn(draw, count, pool, ready)
    except BrokenProcessPool:
        raise TrainingError(
            "the process that draws what is learned from died: memory may have run out; in a script of your own, "
            'train under `if __name__ == "__main__":`'
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _drawn(draw: Callable[[int], T], count: int, pool: ProcessPoolExecutor, ready: Future[None]) -> Iterator[T]:
    numbers = iter(range(count))
    for number in numbers:
        yield draw(number)
        if ready.done():
            ready.result()  # raises, if it died
            break
    waiting: deque[Future[T]] = deque(pool.submit(_draw_there, number) for number in islice(numbers, AHEAD))
    while waiting:
        drawn = waiting.popleft().result()
        waiting.extend(pool.submit(_draw_there, number) for number in islice(numbers, 1))
        yield drawn


# In the process ---------------------------------------------------------------------------------------------------

_there: Callable[[int], Any]
"""What it draws with."""


def _begin(draw: bytes) -> None:
    global _there
    live_with_parent()
    _there = pickle.loads(draw)  # of our own parent


def _ready() -> None:
    """Answered once the process has begun."""


def _draw_there(number: int) -> Any:
    return _there(number)
