"""Batches of the prompts that are ready, and a thread for functions that block."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from vlmgym.errors import VlmgymError
from vlmgym.policies.base import ModelPolicy, Prompt, Reply

MAX_DELAY = 0.02
"""Maximum seconds that a prompt waits for others to fill the batch; about the time to draw an image."""


class BatchPolicy(ModelPolicy):
    """Collects the prompts that are ready into batches, and runs one batch at a time."""

    max_batch_size: int | None = None

    async def open(self) -> None:
        """Create an empty queue of prompts, in the event loop of this run."""
        self._running = 1
        self._full = asyncio.Event()
        self._waiting: list[tuple[list[Any], Prompt, asyncio.Future[Reply]]] = []
        self._batcher: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop batching, and cancel the prompts that wait for a batch."""
        if self._batcher is not None:
            self._batcher.cancel()
        for _, _, future in self._waiting:
            future.cancel()

    def set_running_episodes(self, episodes: int) -> None:
        """Set the number of running episodes; a batch with a prompt from each of them is full."""
        self._running = episodes
        if len(self._waiting) >= min(episodes, self.max_batch_size or episodes):
            self._full.set()

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """Respond to a prompt as part of a batch."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((images, prompt, future))
        self.set_running_episodes(self._running)
        if self._batcher is None or self._batcher.done():
            self._batcher = asyncio.create_task(self._run_batches())
        return await future

    @abstractmethod
    async def respond_to_batch(self, images: list[list[Any]], prompts: list[Prompt]) -> Sequence[Reply | VlmgymError]:
        """Return a reply or an error for each prompt; a raised error fails the whole batch."""

    async def _run_batches(self) -> None:
        while self._waiting:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._full.wait(), MAX_DELAY)
            count = min(len(self._waiting), self.max_batch_size or len(self._waiting))
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            self._full.clear()
            futures = [future for _, _, future in batch]
            results: list[tuple[asyncio.Future[Reply], Reply | Exception]]
            try:
                replies = await self.respond_to_batch(
                    [images for images, _, _ in batch], [prompt for _, prompt, _ in batch]
                )
                results = list(zip(futures, replies, strict=True))
            except Exception as error:  # otherwise the prompts would wait forever
                results = [(future, error) for future in futures]
            for future, reply in results:
                if future.done():
                    continue
                if isinstance(reply, Exception):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)


_Job = tuple[Callable[..., Any], tuple[Any, ...], Future[Any]]


class DaemonThread:
    """Runs calls one after another. All coroutines share an event loop, so that clients can keep connections open."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] | None = None

    def call(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call a sync or async function in the thread; return a future that the running event loop can await."""
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), daemon=True, name=self._name).start()
            weakref.finalize(self, self._jobs.put, None)
        future: Future[Any] = Future()
        self._jobs.put((function, args, future))
        return asyncio.wrap_future(future)


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    loop = asyncio.new_event_loop()
    while (job := jobs.get()) is not None:
        function, args, future = job
        result = None
        if future.set_running_or_notify_cancel():
            try:
                result = function(*args)
                if inspect.isawaitable(result):
                    result = loop.run_until_complete(result)
            except BaseException as error:
                # SystemExit and CancelledError would silently end the thread; asyncio's futures reject StopIteration.
                is_expected = isinstance(error, Exception) and not isinstance(error, StopIteration)
                future.set_exception(error if is_expected else RuntimeError(f"{type(error).__name__}: {error}"))
            else:
                future.set_result(result)
        del job, function, args, future, result  # otherwise kept alive until the next call
    loop.close()
