import asyncio
import time
from contextlib import AsyncExitStack

from hypothesis import given
from hypothesis import strategies as st

from vlmgym.policies.openai.client import RequestLimit

ACTS = st.lists(st.tuples(st.sampled_from(["ask", "answer", "reject", "fail", "give up"]), st.integers(0, 99)))


@given(st.integers(1, 8), ACTS)
def test_limit_holds_and_never_starves_requests(max_requests, acts):
    async def run():
        limit = RequestLimit(max_requests)
        ends = {}  # futures that end the requests in flight, by task
        waiting = []

        async def request(end):
            async with limit.slot() as round_number:
                assert limit.in_flight <= limit.width
                waiting.remove(asyncio.current_task())
                ends[asyncio.current_task()] = end
                how = await end
                if how == "answer":
                    limit.on_success()
                elif how == "reject":
                    limit.on_rejected(round_number)

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
            assert 1 <= limit.width <= max_requests
            assert limit.in_flight == len(ends)
            assert not waiting or limit.in_flight >= limit.width
        while ends:
            ends.popitem()[1].set_result("answer")
            for _ in range(3):
                await asyncio.sleep(0)
        assert not waiting
        assert limit.in_flight == 0

    asyncio.run(run())


async def reject(limit, count):
    """Reject `count` concurrent requests."""
    async with AsyncExitStack() as stack:
        begun = [await stack.enter_async_context(limit.slot()) for _ in range(count)]
        for round_number in begun:
            limit.on_rejected(round_number)


def test_rejections_halve_the_limit_once_per_round():
    async def run():
        limit = RequestLimit(64)
        widths = []
        for _ in range(8):
            await reject(limit, limit.width)
            widths.append(limit.width)
        assert widths == [32, 16, 8, 4, 2, 1, 1, 1]

    asyncio.run(run())


def test_requests_wait_for_the_longest_pause():
    async def run():
        limit = RequestLimit(4)
        for seconds in (0.05, 0.2, 0.1):
            limit.pause(seconds)
        began = []

        async def request():
            async with limit.slot():
                began.append(time.monotonic())

        start = time.monotonic()
        await asyncio.gather(*(request() for _ in range(8)))
        assert all(moment - start > 0.19 for moment in began)

    asyncio.run(run())
