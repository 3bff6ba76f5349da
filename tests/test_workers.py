import asyncio
import gc
import itertools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from vlmgym.errors import StateError, UsageError, WorkerError
from vlmgym.workers import pool as pool
from vlmgym.workers import pool_process
from vlmgym.workers.pool import ProcessPool


@pytest.fixture(scope="module")
def workers():
    with ProcessPool(2) as workers:
        asyncio.run(workers.start())
        yield workers


def test_calls_are_spread_and_answered_each_by_its_own(workers):
    async def doubled():
        return await asyncio.gather(*(workers.call(_slow_double, i) for i in range(50)))

    answers = asyncio.run(doubled())
    assert [value for value, _ in answers] == [2 * i for i in range(50)]
    assert len({pid for _, pid in answers}) == 2


def test_messages_larger_than_any_buffer_go_both_ways(workers):
    async def echoed():
        return await asyncio.gather(*(workers.call(bytes.upper, bytes([97 + i]) * 3_000_000) for i in range(6)))

    assert asyncio.run(echoed()) == [bytes([65 + i]) * 3_000_000 for i in range(6)]


def test_an_error_keeps_its_type_and_says_where_it_was_raised(workers):
    with pytest.raises(StateError, match="no position") as raised:
        asyncio.run(workers.call(_refuses))
    assert "in _refuses" in str(raised.value.__cause__)


def test_what_cannot_travel_is_an_error_and_the_process_goes_on(workers):
    with pytest.raises(AttributeError, match="lambda"):
        asyncio.run(workers.call(_gives_lambda))
    with pytest.raises(WorkerError, match="a worker process raised _Unsendable: odd"):
        asyncio.run(workers.call(_raises_unsendable))
    with pytest.raises(WorkerError, match="the answer of a worker process cannot be read: ValueError: not here"):
        asyncio.run(workers.call(_Unreadable))
    assert asyncio.run(workers.call(_slow_double, 4))[0] == 8


def test_a_stop_iteration_is_an_error_and_does_not_hang(workers):
    async def raised():
        await asyncio.wait_for(workers.call(_takes_next_of_nothing), 10)

    with pytest.raises(WorkerError, match="a worker process raised StopIteration"):
        asyncio.run(raised())


def test_what_cannot_be_sent_is_a_mistake_of_the_user_and_the_process_goes_on(workers):
    for function in (lambda: 0, _UnreadableThere()):
        with pytest.raises(UsageError, match=r"cannot be sent to a worker process \(.*\): define it in a module"):
            asyncio.run(workers.call(function))
    assert asyncio.run(workers.call(_slow_double, 4))[0] == 8


def test_a_game_of_a_program_without_a_file_is_a_mistake_of_the_user():
    program = """
import asyncio
from vlmgym.workers.pool import ProcessPool

class Mine:
    def play(self): pass

with ProcessPool(1) as workers:
    asyncio.run(workers.call(Mine().play))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "UsageError: an object cannot be sent to a worker process (AttributeError: Can't get" in run.stderr


def test_answers_that_nobody_waits_for_any_more_reach_nobody_else(workers):
    async def given_up():
        calls = [asyncio.ensure_future(workers.call(time.sleep, 0.05)) for _ in range(12)]
        await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(ended, asyncio.CancelledError) for ended in asyncio.run(given_up()))
    assert asyncio.run(workers.call(_slow_double, 21))[0] == 42  # in another event loop


def test_a_dead_worker_fails_all_calls_soon_and_from_then_on():
    async def ended():
        with ProcessPool(1) as workers:
            first = [workers.call(_dies), *(workers.call(_slow_double, i) for i in range(5))]
            return [*await asyncio.gather(*first, return_exceptions=True), *await _errors(workers.call(os.getpid))]

    start = time.monotonic()
    errors = asyncio.run(ended())
    assert len(errors) == 7
    assert all(isinstance(error, WorkerError) and "a worker process died" in str(error) for error in errors)
    assert time.monotonic() - start < 10


async def _errors(*calls):
    return await asyncio.gather(*calls, return_exceptions=True)


def test_an_interrupt_comes_before_the_death_of_a_worker_that_the_same_signal_ended(monkeypatch):
    monkeypatch.setattr(pool_process, "GRACE", 20 * pool_process.GRACE)  # this machine may be slow

    async def interrupted():
        others = {*multiprocessing.active_children()}
        with ProcessPool(1) as workers:
            await workers.start()
            call = asyncio.ensure_future(workers.call(_dies))
            while {*multiprocessing.active_children()} - others:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            call.cancel()
            return await _errors(call)

    (error,) = asyncio.run(interrupted())
    assert isinstance(error, asyncio.CancelledError)


def test_a_pool_is_left_soon_although_its_processes_are_busy(monkeypatch):
    monkeypatch.setattr(pool, "LAST_CALLS", 3.0)

    async def left():
        with ProcessPool(2) as workers:
            await workers.start()
            calls = [asyncio.ensure_future(workers.call(time.sleep, 60)) for _ in range(6)]
            await asyncio.sleep(0.1)
            start = time.monotonic()
        took = time.monotonic() - start
        with pytest.raises(UsageError, match="the pool is closed"):
            await workers.call(os.getpid)
        return took, await asyncio.wait_for(_errors(*calls), 10)

    took, errors = asyncio.run(left())
    assert took < 5  # not 3 seconds for each
    assert all(isinstance(error, asyncio.CancelledError) for error in errors)


def test_nothing_stays_open_when_a_process_cannot_be_started(workers):
    def used():
        gc.collect()
        return {int(name) for name in os.listdir("/dev/fd")}, {*multiprocessing.active_children()}

    before = used()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = (number for number in itertools.count() if number not in before[0])
    few = next(itertools.islice(free, 12, None))  # a process takes six while it starts, of which it keeps three
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            ProcessPool(100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert used() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_worker_starts_ends_the_program_and_not_the_worker(tmp_path, number):
    script = tmp_path / "program.py"
    program = """
        import asyncio, os, signal
        from vlmgym.workers.pool import ProcessPool
        from vlmgym.cli.console import reporting_errors
        from vlmgym.workers.process import block_sigint

        if __name__ == "__mp_main__":  # a worker that reads this program
            os.kill(os.getpid(), signal.SIGINT)

        if __name__ == "__main__":
            with reporting_errors(), ProcessPool(1) as workers:
                print(asyncio.run(workers.call(abs, -7)), flush=True)
                with block_sigint():
                    os.kill(os.getpid(), NUMBER)
                print("lost")
        """
    script.write_text(textwrap.dedent(program).replace("NUMBER", str(int(number))))
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.returncode) == ("7\n", 128 + number)
    assert "Traceback" not in run.stderr


def _slow_double(number):
    time.sleep(0.005)
    return 2 * number, os.getpid()


def _refuses():
    raise StateError("no position")


def _gives_lambda():
    return lambda: None


class _Unsendable(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def _raises_unsendable():
    raise _Unsendable("odd", 2)


def _takes_next_of_nothing():
    return next(iter(()))


class _Unreadable:
    def __reduce__(self):
        return _not_here, (os.getpid(),)


def _not_here(pid):
    if pid != os.getpid():
        raise ValueError("not here")
    return _Unreadable()


class _UnreadableThere:
    def __reduce__(self):
        return _not_installed, ()


def _not_installed():
    raise ImportError("no such module")


def _dies():
    os.kill(os.getpid(), signal.SIGKILL)
