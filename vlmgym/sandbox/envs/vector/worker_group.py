"""All workers of a vector runner: which environments have an answer on its way, and whose comes next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import UsageError
from vlmgym.sandbox.envs.vector.worker import Reply
from vlmgym.sandbox.envs.vector.worker_process import WorkerHandle

Ids = NDArray[np.intp]
"""Numbers of environments within the runner."""


class WorkerGroup:
    """Sends each worker what concerns its environments.

    A call that a worker refuses, which is a `UsageError`, leaves all as it was. After anything else (a process hangs or
    dies again and again, a fault in a game, Ctrl-C) it is not known what the environments are at: all is closed.
    """

    def __init__(self, workers: Sequence[WorkerHandle]) -> None:
        """Take over workers, whose parts follow each other."""
        self.workers = workers
        self.closed = False
        sizes = [worker.part.stop - worker.part.start for worker in workers]
        self._shard_of = np.repeat(np.arange(len(workers)), sizes)
        self._sent: list[list[tuple[int, Ids]]] = [[] for _ in workers]
        self._count = count()
        self.in_flight = np.zeros(len(self._shard_of), bool)
        """Whether an environment has an answer that was not taken."""

    def submit(self, name: str, ids: Ids, *columns: Sequence[Any], timeout: float | None) -> None:
        """Begin a call whose answer is a `Reply`.

        Args:
            name: Method of `EnvWorker`, which takes the numbers of environments first.
            ids: The environments.
            columns: Its further arguments: sequences with one value an environment.
            timeout: Seconds after which a process that does not read counts as hung; None: never.

        Raises:
            UsageError: The call cannot be sent; nothing was begun.
            WorkerError: A process hangs.
        """
        calls = []
        for number, at, local in self._parts(ids):
            args = (local, *([column[i] for i in at] for column in columns))
            calls.append((number, ids[at], self.workers[number].pack((name, args))))
        try:
            for number, own, packed in calls:
                self.workers[number].submit(packed, timeout)
                self._sent[number].append((next(self._count), own))
                self.in_flight[own] = True
        except BaseException:
            self.close()
            raise

    def collect(self, timeout: float | None) -> list[tuple[Ids, Reply]]:
        """All answers that are on their way; if one is a refusal, it is raised when all are in."""
        replies, refusals = [], []
        for number, sent in enumerate(self._sent):
            while sent:
                try:
                    replies.append(self._take(number, timeout))
                except UsageError as error:
                    refusals.append(error)
        if refusals:
            raise refusals[0]
        return replies

    def take(self, timeout: float | None) -> tuple[Ids, Reply]:
        """One answer: that of the worker that is ready, and of several, that was asked first."""
        waiting = [number for number, sent in enumerate(self._sent) if sent]
        things: dict[int, Any] = {number: self.workers[number].wait_on() for number in waiting}
        ready = [number for number in waiting if things[number] is None]
        if not ready:
            try:
                objects = wait(list(things.values()), timeout)
            except BaseException:
                self.close()
                raise
            ready = [number for number in waiting if things[number] in objects]
        if not ready:
            return self._take(waiting[0], 0.0)
        return self._take(min(ready, key=lambda number: self._sent[number][0][0]), timeout)

    def call(self, name: str, ids: Ids, *args: Any, columns: Sequence[Any] = (), timeout: float | None) -> list[Any]:
        """Call a method of workers whose answer is a list with one value an environment, or None.

        Args:
            name: Method of `EnvWorker`.
            ids: The environments, ascending.
            args: Its arguments after the numbers of environments and the columns.
            columns: Sequences with one value an environment.
            timeout: As in `submit`.

        Raises:
            UsageError: A worker refuses; the others have done it.
            WorkerError: A process hangs.
        """
        calls = []
        for number, at, local in self._parts(ids):
            mine = [[column[i] for i in at] for column in columns]
            calls.append((number, self.workers[number].pack((name, (local, *mine, *args)))))
        results: list[Any] = []
        refusal: UsageError | None = None
        try:
            for number, packed in calls:
                self.workers[number].submit(packed, timeout)
            for number, _ in calls:
                try:
                    results += self.workers[number].result(timeout) or ()
                except UsageError as error:
                    refusal = refusal or error
        except BaseException:
            self.close()
            raise
        if refusal is not None:
            raise refusal
        return results

    def start_of(self, i: int) -> int:
        """Number of the first environment of the worker that environment i is in."""
        start: int = self.workers[self._shard_of[i]].part.start
        return start

    def close(self) -> None:
        """End all workers; doing it twice is fine."""
        if not self.closed:
            self.closed = True
            for worker in self.workers:
                worker.close()

    def _parts(self, ids: Ids) -> Iterator[tuple[int, Ids, list[int]]]:
        """For each worker that has some of the environments: its number, their places in `ids`, their numbers there."""
        shard_of = self._shard_of[ids]
        for number, worker in enumerate(self.workers):
            at = np.flatnonzero(shard_of == number)
            if len(at):
                yield number, at, (ids[at] - worker.part.start).tolist()

    def _take(self, number: int, timeout: float | None) -> tuple[Ids, Reply]:
        """The oldest answer of a worker."""
        try:
            reply: Reply = self.workers[number].result(timeout)
        except UsageError:
            self._landed(number)
            raise
        except BaseException:
            self.close()
            raise
        return self._landed(number), reply

    def _landed(self, number: int) -> Ids:
        _, ids = self._sent[number].pop(0)
        self.in_flight[ids] = False
        return ids
