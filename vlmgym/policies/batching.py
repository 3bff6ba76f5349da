"""Dynamic batching: prompts that are ready go into the next batch."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from vlmgym.errors import VlmgymError
from vlmgym.policies.base import ModelPolicy, Prompt, Reply

MAX_DELAY = 0.02
"""Maximum seconds that a prompt waits for others to fill the batch; about the time to draw an image."""

BatchFunction = Callable[[list[list[Any]], list[Prompt]], Awaitable[Sequence[Reply | VlmgymError]]]
"""Function from a list of images per prompt, and the prompts, to one reply or error per prompt."""


class Batcher:
    """Collects prompts into batches and runs one batch at a time, in a single event loop."""

    def __init__(self, respond: BatchFunction, max_size: int | None = None) -> None:
        """Wrap a batch function; an error that it raises fails the whole batch."""
        self._respond = respond
        self._max_size = max_size
        self._running = 1
        self._full = asyncio.Event()
        self._waiting: list[tuple[list[Any], Prompt, asyncio.Future[Reply]]] = []
        self._batcher: asyncio.Task[None] | None = None

    def set_running_episodes(self, episodes: int) -> None:
        """Set the number of running episodes; a batch of as many prompts is full."""
        self._running = episodes
        if len(self._waiting) >= min(episodes, self._max_size or episodes):
            self._full.set()

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """Return the reply to a prompt, batched with other prompts."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((images, prompt, future))
        self.set_running_episodes(self._running)
        if self._batcher is None or self._batcher.done():
            self._batcher = asyncio.create_task(self._run_batches())
        return await future

    def close(self) -> None:
        """Stop, and cancel pending prompts."""
        if self._batcher is not None:
            self._batcher.cancel()
        for _, _, future in self._waiting:
            future.cancel()

    async def _run_batches(self) -> None:
        while self._waiting:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._full.wait(), MAX_DELAY)
            count = min(len(self._waiting), self._max_size or len(self._waiting))
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            self._full.clear()
            try:
                replies = await self._respond([images for images, _, _ in batch], [prompt for _, prompt, _ in batch])
                answered = list(zip(batch, replies, strict=True))
            except Exception as error:  # otherwise the prompts would wait forever
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


class BatchPolicy(ModelPolicy):
    """Responds to ready prompts in batches."""

    max_batch_size: int | None = None

    async def open(self) -> None:
        """Create the batcher of this event loop."""
        self._batcher = Batcher(self.respond_to_batch, self.max_batch_size)

    async def close(self) -> None:
        """Stop batching."""
        self._batcher.close()

    def set_running_episodes(self, episodes: int) -> None:
        """Set the size of a full batch."""
        self._batcher.set_running_episodes(episodes)

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """Respond to a prompt as part of a batch."""
        return await self._batcher.respond(images, prompt)

    @abstractmethod
    async def respond_to_batch(self, images: list[list[Any]], prompts: list[Prompt]) -> Sequence[Reply | VlmgymError]:
        """Return a reply or an error for each prompt."""
