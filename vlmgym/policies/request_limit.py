"""How many requests a server is asked at once: fewer when it says that they are too many, more again as it answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RequestLimit:
    """A gate for requests; belongs to one event loop.

    Its width follows the rule of TCP (additive increase, multiplicative decrease: RFC 5681): each answer widens it so
    that as many answers as it is wide add one place, and a refusal halves it. Refusals of requests that began before
    the last halving are its echo, and change nothing: 64 of them at once halve it once.
    """

    def __init__(self, most: int) -> None:
        """Begin with the full width.

        Args:
            most: Requests at once, at most; 1 or more.
        """
        self.most = most
        self.in_flight = 0
        self._width = float(most)
        self._round = 0
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def width(self) -> int:
        """How many requests may be in flight now, 1 to `most`."""
        return int(self._width)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[int]:
        """Hold a place for one request, first come, first served; the number yielded is for `refused`."""
        admitted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        self._admit()
        try:
            round_begun = await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():
                self._leave()  # the place was given in the moment of cancelling
            raise
        try:
            yield round_begun
        finally:
            self._leave()

    def answered(self) -> None:
        """A request was answered: widen."""
        self._width = min(self.most, self._width + 1 / self._width)
        self._admit()

    def refused(self, round_begun: int) -> None:
        """The server said that requests are too many: halve, once for all that began in the same round."""
        if round_begun == self._round:
            self._round += 1
            self._width = max(1.0, self._width / 2)

    def pause(self, seconds: float) -> None:
        """Let no request begin for so long; of several pauses, the one that ends last counts."""
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

    def _leave(self) -> None:
        self.in_flight -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._pause is None and self.in_flight < self.width:
            admitted = self._waiting.popleft()
            if not admitted.done():  # else its request was cancelled
                self.in_flight += 1
                admitted.set_result(self._round)
