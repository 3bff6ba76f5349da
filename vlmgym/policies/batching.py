"""Asks for many prompts at once: whatever is ready goes into the next batch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from vlmgym.errors import VlmgymError
from vlmgym.policies.base import Prompt, Reply

LINGER = 0.02
"""Seconds the first waiting prompt waits for others, so that batches are full: about what drawing takes."""

Ask = Callable[[list[list[Any]], list[Prompt]], Awaitable[Sequence[Reply | VlmgymError]]]
"""Takes, for each prompt, its list of images, and the prompts; returns a reply each, or why there is none."""


class Batcher:
    """Gathers prompts into batches, one batch at a time; belongs to one event loop."""

    def __init__(self, ask: Ask, largest: int | None = None) -> None:
        """Wrap a function that answers a batch.

        Args:
            ask: The function; what it raises, everyone in the batch gets.
            largest: Prompts in a batch, at most; None: any number.
        """
        self._ask = ask
        self._largest = largest
        self._running = 1
        self._full = asyncio.Event()
        self._waiting: list[tuple[list[Any], Prompt, asyncio.Future[Reply]]] = []
        self._batcher: asyncio.Task[None] | None = None

    def set_running_episodes(self, episodes: int) -> None:
        """No more than so many prompts wait at a time: a batch of as many is full."""
        self._running = episodes
        if len(self._waiting) >= min(episodes, self._largest or episodes):
            self._full.set()

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """The reply to this prompt, asked together with whatever else is ready."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((images, prompt, future))
        self.set_running_episodes(self._running)
        if self._batcher is None or self._batcher.done():
            self._batcher = asyncio.create_task(self._ask_while_waiting())
        return await future

    def close(self) -> None:
        """Ask no more; whoever still waits is cancelled."""
        if self._batcher is not None:
            self._batcher.cancel()
        for _, _, future in self._waiting:
            future.cancel()

    async def _ask_while_waiting(self) -> None:
        while self._waiting:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._full.wait(), LINGER)
            count = min(len(self._waiting), self._largest or len(self._waiting))
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            self._full.clear()
            try:
                replies = await self._ask([images for images, _, _ in batch], [prompt for _, prompt, _ in batch])
                answered = list(zip(batch, replies, strict=True))
            except Exception as error:  # whoever waits would wait for ever
                for _, _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, _, future), reply in answered:
                if future.done():
                    continue
                if isinstance(reply, VlmgymError):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
