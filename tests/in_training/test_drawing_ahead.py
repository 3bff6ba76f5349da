"""What a process of its own draws ahead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import psutil
import pytest

from training.local import ahead
from training.local.ahead import FEW, drawn_ahead
from vlmgym.errors import UsageError

HERE = os.getpid()
MANY = 10**6
ROOT = Path(__file__).parents[2]


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


def fails_at_1000(number: int) -> int:
    """The number itself, but for some."""
    if number >= 1000:
        raise UsageError(f"there is no demonstration {number}")
    return number_soon(number)


def many_bytes(number: int) -> bytes:
    """30 MB that begin with the number."""
    return str(number).encode().ljust(30_000_000)


class Unreadable:
    """Can be pickled, and not be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("nothing",)


@dataclass(frozen=True)
class UnreadableElsewhere:
    """Draws numbers in one process, and in others, which leave a file, what cannot be read."""

    tried: Path
    home: int

    def __call__(self, number: int) -> Any:
        if os.getpid() == self.home:
            return number_soon(number)
        self.tried.touch()
        return Unreadable()


def until_elsewhere(drawn: Iterator[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """What is drawn here, and the first that is not."""
    found: list[tuple[int, Any]] = []
    while not found or found[-1][0] == HERE:
        found.append(next(drawn))
    return found


def past_file(drawn: Iterator[Any], path: Path) -> list[Any]:
    """What is drawn until a file is there, and ten more."""
    found = [next(drawn)]
    while not path.exists():
        found.append(next(drawn))
    return [*found, *islice(drawn, 10)]


def test_numbers_come_in_their_order_first_from_here_then_from_a_process() -> None:
    with drawn_ahead(Signed(number_soon), MANY) as drawn:
        begun = until_elsewhere(drawn)
        more = list(islice(drawn, 20))
    processes, numbers = zip(*begun, *more)
    assert list(numbers) == list(range(len(numbers)))
    assert len(begun) > 1
    assert {*processes[: len(begun) - 1]} == {HERE}
    assert len({*processes[len(begun) - 1 :]}) == 1
    assert not psutil.pid_exists(processes[-1])


@pytest.mark.parametrize("count", [0, 1, FEW])
def test_of_few_all_are_drawn_here(count: int) -> None:
    with drawn_ahead(Signed(number_soon), count) as drawn:
        assert list(drawn) == [(HERE, number) for number in range(count)]


def test_what_cannot_go_to_a_process_draws_here() -> None:
    with (
        pytest.warns(RuntimeWarning, match="no process draws ahead from now on, which is slower .*lambda"),
        drawn_ahead(lambda number: (os.getpid(), number), 2 * FEW) as drawn,
    ):
        assert list(drawn) == [(HERE, number) for number in range(2 * FEW)]


def test_where_no_process_can_be_started_all_are_drawn_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    told = pytest.warns(RuntimeWarning, match="no process draws ahead .*No such file or directory: '/nowhere/python'")
    with told, drawn_ahead(Signed(number_soon), 2 * FEW) as drawn:
        assert list(drawn) == [(HERE, number) for number in range(2 * FEW)]


def test_a_process_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with drawn_ahead(Signed(number_soon), MANY) as drawn:
        begun = until_elsewhere(drawn)
        monkeypatch.setattr(ahead, "PATIENCE", 0.3)
        os.kill(begun[-1][0], signal.SIGSTOP)
        with pytest.warns(RuntimeWarning, match="no process draws ahead from now on"):
            more = list(takewhile(lambda one: one[0] != HERE, drawn))
    assert [number for _, number in (*begun, *more)] == list(range(len(begun) + len(more)))
    assert not psutil.pid_exists(begun[-1][0])


def test_a_process_may_die_in_the_middle_of_a_message() -> None:
    with drawn_ahead(Signed(many_bytes), MANY) as drawn:
        begun = until_elsewhere(drawn)
        time.sleep(0.5)  # it waits for this process to read on
        os.kill(begun[-1][0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="which is slower .the process is gone"):
            process, drawn_here = next(drawn)
    assert (process, drawn_here) == (HERE, many_bytes(len(begun)))


def test_all_are_drawn_and_no_more() -> None:
    found: list[tuple[int, int]] = []
    with drawn_ahead(Signed(number_soon), 300) as drawn:
        for each in drawn:
            found.append(each)
            time.sleep(0.1 if each[0] == HERE else 0)  # so that the process is ready before the end
    assert [number for _, number in found] == list(range(300))
    assert found[-1][0] != HERE


def test_what_fails_in_the_process_is_raised_here() -> None:
    found: list[tuple[int, int]] = []
    told = pytest.raises(UsageError, match=r"^there is no demonstration 1000$")
    slower = pytest.warns(RuntimeWarning, match="which is slower .the process is gone")
    with slower, told, drawn_ahead(Signed(fails_at_1000), MANY) as drawn:
        found.extend(drawn)
    assert [number for _, number in found] == list(range(1000))


def test_what_cannot_be_read_is_drawn_here(tmp_path: Path) -> None:
    draw = UnreadableElsewhere(tmp_path / "tried", HERE)
    told = pytest.warns(RuntimeWarning, match="which is slower .ValueError")
    with told, drawn_ahead(draw, MANY) as drawn:
        found = past_file(drawn, draw.tried)
    assert found == list(range(len(found)))


def test_after_the_death_of_the_process_drawing_goes_on_here() -> None:
    with drawn_ahead(Signed(number_soon), MANY) as drawn:
        begun = until_elsewhere(drawn)
        os.kill(begun[-1][0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="which is slower .the process is gone"):
            more = list(islice(drawn, 100))
    assert [number for _, number in (*begun, *more)] == list(range(len(begun) + 100))
    assert more[-1][0] == HERE


PROGRAM = """
import os, sys, time
from training.local.ahead import drawn_ahead
from tests.in_training.test_drawing_ahead import MANY, Signed, number_soon

print("begins")
with drawn_ahead(Signed(number_soon), MANY) as drawn:
    theirs = next(process for process, _ in drawn if process != os.getpid())
    print(theirs, flush=True)
    {then}
"""


def test_a_script_without_a_main_part_is_run_once() -> None:
    script = PROGRAM.format(then="pass")
    done = subprocess.run([sys.executable, "-"], cwd=ROOT, input=script, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout.count("begins")) == (0, "", 1)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_process_does_not_outlive_its_parent(sent: signal.Signals) -> None:
    script = PROGRAM.format(then="sum(number for _, number in drawn)")
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "begins\n"
        theirs = int(parent.stdout.readline())
        os.killpg(parent.pid, sent)  # as a terminal does
        parent.wait(30)
    for _ in range(100):
        if not psutil.pid_exists(theirs) or psutil.Process(theirs).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    raise AssertionError("ten seconds after its parent it is still there")
