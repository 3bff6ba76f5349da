"""What a process of its own draws ahead."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from training.local.ahead import AHEAD, FEW, drawn_ahead
from training.local.errors import TrainingError
from vlmgym.errors import UsageError

HERE = os.getpid()
MANY = 10**6


@dataclass(frozen=True)
class Signed:
    """Draws, and says in which process."""

    draw: Callable[[int], Any]

    def __call__(self, number: int) -> tuple[int, Any]:
        return os.getpid(), self.draw(number)


def number_soon(number: int) -> int:
    """The number itself."""
    time.sleep(0.001)
    return number


@dataclass(frozen=True)
class FailsElsewhere:
    """Draws numbers in the process that made it."""

    home: int = HERE

    def __call__(self, number: int) -> int:
        if os.getpid() != self.home:
            raise UsageError("there are no demonstrations")
        return number_soon(number)


def until_elsewhere(drawn: Iterator[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """What is drawn here, and the first that is not."""
    found: list[tuple[int, Any]] = []
    while not found or found[-1][0] == HERE:
        found.append(next(drawn))
    return found


def test_numbers_come_in_their_order_first_from_here_then_from_a_process() -> None:
    with drawn_ahead(Signed(number_soon), MANY) as drawn:
        begun = until_elsewhere(drawn)
        more = [next(drawn) for _ in range(3 * AHEAD)]
    processes, numbers = zip(*begun, *more)
    assert list(numbers) == list(range(len(numbers)))
    assert len(begun) > 1
    assert {*processes[: len(begun) - 1]} == {HERE}
    assert len({*processes[len(begun) - 1 :]}) == 1
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("count", [0, 1, FEW])
def test_of_few_all_are_drawn_here(count: int) -> None:
    with drawn_ahead(Signed(number_soon), count) as drawn:
        assert list(drawn) == [(HERE, number) for number in range(count)]


def test_what_cannot_go_to_a_process_draws_here() -> None:
    with drawn_ahead(lambda number: (os.getpid(), number), 2 * FEW) as drawn:
        assert list(drawn) == [(HERE, number) for number in range(2 * FEW)]


def test_all_are_drawn_and_no_more() -> None:
    with drawn_ahead(Signed(number_soon), FEW + 500) as drawn:
        found = []
        for each in drawn:
            found.append(each)
            time.sleep(0.1 if each[0] == HERE else 0)  # so that the process is ready before the end
    assert [number for _, number in found] == list(range(FEW + 500))
    assert found[-1][0] != HERE


def test_what_goes_wrong_in_the_process_is_told_as_if_it_went_wrong_here() -> None:
    told = pytest.raises(UsageError, match=r"^there are no demonstrations$")
    with told, drawn_ahead(FailsElsewhere(), MANY) as drawn:
        deque(drawn, maxlen=0)


def test_a_process_that_dies_ends_training_with_a_message() -> None:
    died = pytest.raises(TrainingError, match="draws what is learned from died")
    with died, drawn_ahead(Signed(number_soon), MANY) as drawn:
        os.kill(until_elsewhere(drawn)[-1][0], signal.SIGKILL)
        deque(drawn, maxlen=0)
