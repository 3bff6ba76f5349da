import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym.policies.request_limit import RequestLimit

ACTS = st.lists(st.tuples(st.sampled_from(["ask", "answer", "refuse", "fail", "give up"]), st.integers(0, 99)))


@given(st.integers(1, 8), ACTS)
def test_whatever_happens_the_limit_holds_and_nobody_waits_in_vain(most, acts):
    async def run():
        limit = RequestLimit(most)
        ends = {}  # of the requests in flight, by their task
        waiting = []

        async def request(end):
            async with limit.place() as round_begun:
                assert limit.in_flight <= limit.width
                waiting.remove(asyncio.current_task())
                ends[asyncio.current_task()] = end
                how = await end
                if how == "answer":
                    limit.answered()
                elif how == "refuse":
                    limit.refused(round_begun)

        for act, which in acts:
            if act == "ask":
                task = asyncio.create_task(request(asyncio.get_running_loop().create_future()))
                waiting.append(task)
            elif act == "give up" and waiting:
                waiting.pop(which % len(waiting)).cancel()
            elif act != "give up" and ends:
                task = list(ends)[which % len(ends)]
                ends.pop(task).set_result(act)
            for _ in range(3):
                await asyncio.sleep(0)
            assert 1 <= limit.width <= most
            assert limit.in_flight == len(ends)
            assert not waiting or limit.in_flight >= limit.width
        while ends:
            ends.popitem()[1].set_result("answer")
            for _ in range(3):
                await asyncio.sleep(0)
        assert not waiting
        assert limit.in_flight == 0

    asyncio.run(run())


def test_a_place_that_was_given_to_a_cancelled_request_is_free_again():
    async def run():
        limit = RequestLimit(1)

        async def request():
            async with limit.place():
                pass

        async with AsyncExitStack() as held:
            await held.enter_async_context(limit.place())
            task = asyncio.create_task(request())
            await asyncio.sleep(0)
        task.cancel()  # the place was given a moment ago, and the task has not run since
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await asyncio.wait_for(request(), 1)
        assert limit.in_flight == 0

    asyncio.run(run())


async def refuse(limit, count):
    """So many requests at once, all refused."""
    async with AsyncExitStack() as stack:
        begun = [await stack.enter_async_context(limit.place()) for _ in range(count)]
        for round_begun in begun:
            limit.refused(round_begun)


def test_refusals_halve_the_width_once_a_round():
    async def run():
        limit = RequestLimit(64)
        widths = []
        for _ in range(8):
            await refuse(limit, limit.width)
            widths.append(limit.width)
        assert widths == [32, 16, 8, 4, 2, 1, 1, 1]

    asyncio.run(run())


@pytest.mark.parametrize("most", [1, 2, 10, 64])
def test_a_width_of_answers_adds_about_one_place(most):
    async def run():
        limit = RequestLimit(most)
        await refuse(limit, most)
        while limit.width < most:
            before = limit.width
            for _ in range(before + 1):
                limit.answered()
            assert limit.width == before + 1
        for _ in range(1000):
            limit.answered()
        assert limit.width == most

    asyncio.run(run())


def test_requests_wait_for_the_longest_of_all_pauses():
    async def run():
        limit = RequestLimit(4)
        for seconds in (0.05, 0.2, 0.1):
            limit.pause(seconds)
        began = []

        async def request():
            async with limit.place():
                began.append(time.monotonic())

        asked = time.monotonic()
        await asyncio.gather(*(request() for _ in range(8)))
        assert all(0.19 < start - asked < 0.5 for start in began)
        asked = time.monotonic()
        await request()
        assert began[-1] - asked < 0.05

    asyncio.run(run())
