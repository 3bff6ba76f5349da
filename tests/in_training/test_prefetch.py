"""Items computed by a worker process while the model learns from others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from training.local.prefetch import MIN_ITEMS, prefetch
from vlmgym.errors import UsageError

HERE = os.getpid()
MANY = 10**6
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class WithPid:
    """Adds the id of the process that computed an item."""

    compute: Callable[[int], Any]

    def __call__(self, number: int) -> tuple[int, Any]:
        return os.getpid(), self.compute(number)


def slowly(number: int) -> int:
    """Return the number after a millisecond."""
    time.sleep(0.001)
    return number


def fail_at_5000(number: int) -> int:
    """Return smaller numbers."""
    if number >= 5_000:
        raise UsageError(f"there is no item {number}")
    return slowly(number)


class Unreadable:
    """Can be pickled but not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("nothing",)


def unreadable_elsewhere(home: int, number: int) -> Any:
    """Return the number in the home process, and an object that cannot be unpickled in others."""
    return slowly(number) if os.getpid() == home else Unreadable()


def until_prefetched(items: Iterator[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Return the items computed here and the first one of another process."""
    found = [next(items)]
    while found[-1][0] == HERE:
        found.append(next(items))
    return found


def test_items_are_in_order_first_from_here_then_from_the_worker() -> None:
    with prefetch(WithPid(slowly), MANY) as items:
        first = until_prefetched(items)
        processes, numbers = zip(*first, *islice(items, 20))
    assert list(numbers) == list(range(len(numbers)))
    assert len(first) > 1
    assert {*processes[: len(first) - 1]} == {HERE}
    assert len({*processes[len(first) - 1 :]}) == 1


def test_few_items_are_computed_here() -> None:
    with prefetch(WithPid(slowly), MIN_ITEMS) as items:
        assert list(items) == [(HERE, number) for number in range(MIN_ITEMS)]


def test_all_items_are_computed_and_no_more() -> None:
    found = []
    with prefetch(WithPid(slowly), 300) as items:
        for item in items:
            found.append(item)
            time.sleep(0.1 if item[0] == HERE else 0)  # lets the worker start before the end
    assert [number for _, number in found] == list(range(300))
    assert found[-1][0] != HERE


@pytest.mark.parametrize("compute", [lambda number: number, partial(unreadable_elsewhere, HERE)])
def test_items_that_cannot_be_pickled_are_computed_here(compute: Callable[[int], Any]) -> None:
    warned = pytest.warns(RuntimeWarning, match="prefetching failed")
    with warned as warnings, prefetch(compute, MANY) as items:
        found = []
        while not len(warnings):
            found.append(next(items))
        found += islice(items, 10)
    assert found == list(range(len(found)))


def test_errors_of_the_worker_are_raised_here() -> None:
    found: list[int] = []
    warned = pytest.warns(RuntimeWarning, match="prefetching failed")
    with warned, pytest.raises(UsageError, match="no item 5000"), prefetch(fail_at_5000, MANY) as items:
        found.extend(items)
    assert found == list(range(5_000))


def test_items_are_computed_here_after_the_worker_dies() -> None:
    with prefetch(WithPid(slowly), MANY) as items:
        first = until_prefetched(items)
        os.kill(first[-1][0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="prefetching failed"):
            more = list(islice(items, 100))
    assert [number for _, number in (*first, *more)] == list(range(len(first) + 100))
    assert more[-1][0] == HERE


PROGRAM = """
import os
from training.local.prefetch import prefetch
from tests.in_training.test_prefetch import MANY, WithPid, slowly

with prefetch(WithPid(slowly), MANY) as items:
    print(next(process for process, _ in items if process != os.getpid()), flush=True)
    sum(number for _, number in items)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_the_worker_does_not_outlive_its_parent(sent: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        os.killpg(parent.pid, sent)  # the whole group, as from a terminal
        parent.wait(30)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(worker) and psutil.Process(worker).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.1)
