import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from vlmgym.errors import StateError, UsageError, WorkerError
from vlmgym.workers import pool
from vlmgym.workers.pool import ProcessPool


@pytest.fixture(scope="module")
def workers():
    with ProcessPool(2) as workers:
        asyncio.run(workers.start())
        yield workers


def test_calls_use_all_processes(workers):
    async def doubled():
        return await asyncio.gather(*(workers.call(_slow_double, i) for i in range(50)))

    answers = asyncio.run(doubled())
    assert [value for value, _ in answers] == [2 * i for i in range(50)]
    assert len({pid for _, pid in answers}) == 2


def test_errors_keep_type_and_traceback(workers):
    with pytest.raises(StateError, match="invalid state") as raised:
        asyncio.run(workers.call(_raises_state_error))
    assert "in _raises_state_error" in str(raised.value.__cause__)


def test_unpicklable_results_and_errors(workers):
    with pytest.raises(UsageError, match=r"cannot return its result: .*lambda"):
        asyncio.run(workers.call(_returns_lambda))
    with pytest.raises(WorkerError, match="raised _Unpicklable: odd"):
        asyncio.run(workers.call(_raises_unpicklable))
    assert asyncio.run(workers.call(_slow_double, 4))[0] == 8


def test_cancelled_calls(workers):
    async def given_up():
        calls = [asyncio.ensure_future(workers.call(time.sleep, 0.05)) for _ in range(12)]
        await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(ended, asyncio.CancelledError) for ended in asyncio.run(given_up()))
    assert asyncio.run(workers.call(_slow_double, 21))[0] == 42  # in another event loop


def test_dead_worker_fails_all_calls():
    async def ended():
        with ProcessPool(1) as workers:
            first = [workers.call(_dies), *(workers.call(_slow_double, i) for i in range(5))]
            return [*await asyncio.gather(*first, return_exceptions=True), *await _errors(workers.call(os.getpid))]

    errors = asyncio.run(ended())
    assert len(errors) == 7
    assert all(isinstance(error, WorkerError) and "a worker process died" in str(error) for error in errors)


async def _errors(*calls):
    return await asyncio.gather(*calls, return_exceptions=True)


def test_close_does_not_wait_for_busy_processes(monkeypatch):
    monkeypatch.setattr(pool, "CLOSE_TIMEOUT", 3.0)

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
    assert took < 5  # less than 3 seconds for each process
    assert all(isinstance(error, asyncio.CancelledError) for error in errors)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_while_a_worker_starts(tmp_path, number):
    script = tmp_path / "program.py"
    program = """
        import asyncio, os, signal
        from vlmgym.workers.pool import ProcessPool
        from vlmgym.terminal import reporting_errors
        from vlmgym.workers.process import block_sigint

        if __name__ == "__mp_main__":  # a worker imports this program
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


def _raises_state_error():
    raise StateError("invalid state")


def _returns_lambda():
    return lambda: None


class _Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def _raises_unpicklable():
    raise _Unpicklable("odd", 2)


def _dies():
    os.kill(os.getpid(), signal.SIGKILL)
