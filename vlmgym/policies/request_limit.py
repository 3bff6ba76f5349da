"""Adaptive limit on concurrent requests: drops when the server rejects requests, and recovers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RequestLimit:
    """Limits the concurrent requests of one event loop.

    The limit follows TCP congestion control (additive increase, multiplicative decrease; RFC 5681): it grows by one
    per `width` successful requests, and a rejection halves it. Rejections of requests that began before the last
    halving are ignored, so 64 simultaneous rejections halve it once.
    """

    def __init__(self, max_requests: int) -> None:
        """Start at the maximum, which must be at least 1."""
        self.max_requests = max_requests
        self.in_flight = 0
        self._width = float(max_requests)
        self._round = 0
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def width(self) -> int:
        """Current limit, 1 to `max_requests`."""
        return int(self._width)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Hold a slot, first come, first served; yields the round for `on_rejected`: the number of halvings so far."""
        admitted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        self._admit()
        try:
            round_number = await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():
                self._release()  # admitted while being cancelled
            raise
        try:
            yield round_number
        finally:
            self._release()

    def on_success(self) -> None:
        """Raise the limit."""
        self._width = min(self.max_requests, self._width + 1 / self._width)
        self._admit()

    def on_rejected(self, round_number: int) -> None:
        """Halve the limit, once for all requests that began in the same round."""
        if round_number == self._round:
            self._round += 1
            self._width = max(1.0, self._width / 2)

    def pause(self, seconds: float) -> None:
        """Hold back new requests for some seconds; overlapping pauses last until the latest end."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self._pause is not None:
            if self._pause.when() >= until:
                return
            self._pause.cancel()
        self._pause = loop.call_at(until, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._admit()

    def _release(self) -> None:
        self.in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._pause is None and self.in_flight < self.width:
            admitted = self._waiting.popleft()
            if not admitted.done():  # else cancelled
                self.in_flight += 1
                admitted.set_result(self._round)
