"""Group of a vector environment's workers: sends them calls and collects their replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import UsageError
from vlmgym.sandbox.envs.vector.worker_handle import WorkerHandle

Ids = NDArray[np.intp]
"""Indices of environments in the vector environment."""


class WorkerGroup:
    """Sends each worker the part of a call that concerns its environments.

    A `UsageError` changes no environment. After any other error (a hanging worker, repeated deaths, a bug in a game,
    Ctrl-C), the state of the environments is unknown, and the group closes.

    Attributes:
        all: Indices of all environments.
        closed: True once the group is closed.
        in_flight: Bool array of shape (num_envs,); True for environments whose reply has not been collected.
    """

    def __init__(self, workers: Sequence[WorkerHandle]) -> None:
        """Manage these workers, which must be in the order of their environments."""
        self.workers = workers
        self.closed = False
        sizes = [worker.part.stop - worker.part.start for worker in workers]
        self._worker_of = np.repeat(np.arange(len(workers)), sizes)
        self._sent: list[list[tuple[int, Ids]]] = [[] for _ in workers]
        self._count = count()
        self.all = np.arange(len(self._worker_of))
        self.in_flight = np.zeros(len(self._worker_of), bool)

    def submit(
        self, name: str, ids: Ids, *columns: Sequence[Any], args: Sequence[Any] = (), timeout: float | None
    ) -> None:
        """Start a call without waiting for it.

        Args:
            name: Method of `EnvWorker` whose first argument is the indices of environments.
            ids: Indices of the environments in the vector environment.
            columns: Next arguments of the method, each with one value per environment.
            args: Last arguments of the method, the same for all workers.
            timeout: Seconds after which a worker that does not read the call counts as hanging; None to wait forever.

        Raises:
            UsageError: The call cannot be pickled; no worker has received it.
            WorkerError: A worker hangs.
        """
        calls = []
        for number, at, local in self._parts(ids):
            own = (_select(column, at) for column in columns)
            calls.append((number, ids[at], self.workers[number].pack((name, (local, *own, *args)))))
        try:
            for number, sent, packed in calls:
                self.workers[number].submit(packed, timeout)
                self._sent[number].append((next(self._count), sent))
                self.in_flight[sent] = True
        except BaseException:
            self.close()
            raise

    def collect(self, timeout: float | None) -> list[tuple[Ids, Any]]:
        """Wait for all replies in flight; return them with the indices of their environments.

        If workers raised `UsageError`, raise the first one after all replies have arrived.
        """
        replies, errors = [], []
        for number, sent in enumerate(self._sent):
            while sent:
                try:
                    replies.append(self._take(number, timeout))
                except UsageError as error:
                    errors.append(error)
        if errors:
            raise errors[0]
        return replies

    def take(self, timeout: float | None) -> tuple[Ids, Any]:
        """Wait for one reply and return it with the indices of its environments.

        If several are ready, take the one whose call was sent first.
        """
        waiting = [number for number, sent in enumerate(self._sent) if sent]
        waitables: dict[int, Any] = {number: self.workers[number].waitable() for number in waiting}
        ready = [number for number in waiting if waitables[number] is None]
        if not ready:
            try:
                readable = wait(list(waitables.values()), timeout)
            except BaseException:
                self.close()
                raise
            ready = [number for number in waiting if waitables[number] in readable]
        if not ready:
            return self._take(waiting[0], 0.0)
        return self._take(min(ready, key=lambda number: self._sent[number][0][0]), timeout)

    def call(
        self, name: str, ids: Ids, *columns: Sequence[Any], args: Sequence[Any] = (), timeout: float | None
    ) -> list[Any]:
        """Call a method that returns a list with one value per environment, or None; wait for and return all values.

        For the arguments, see `submit`; `ids` must ascend. If one worker raises `UsageError`, the other workers have
        still executed the call.
        """
        self.submit(name, ids, *columns, args=args, timeout=timeout)
        return [value for _, values in self.collect(timeout) for value in values or ()]

    def start_of(self, i: int) -> int:
        """Return the index of the first environment in the worker that runs environment i."""
        start: int = self.workers[self._worker_of[i]].part.start
        return start

    def close(self) -> None:
        """Stop all workers. Idempotent."""
        if not self.closed:
            self.closed = True
            for worker in self.workers:
                worker.close()

    def _parts(self, ids: Ids) -> Iterator[tuple[int, slice | Ids, Sequence[int]]]:
        """Split indices of environments by worker.

        Yields:
            For each worker with at least one of `ids`: its number, the positions of its environments in `ids`, and the
            indices of these environments within the worker.
        """
        if ids is self.all:
            for number, worker in enumerate(self.workers):
                yield number, worker.part, range(worker.part.stop - worker.part.start)
            return
        worker_of = self._worker_of[ids]
        for number, worker in enumerate(self.workers):
            at = np.flatnonzero(worker_of == number)
            if len(at):
                yield number, at, (ids[at] - worker.part.start).tolist()

    def _take(self, number: int, timeout: float | None) -> tuple[Ids, Any]:
        """Wait for the oldest reply of a worker."""
        try:
            reply = self.workers[number].result(timeout)
        except UsageError:
            self._pop_sent(number)
            raise
        except BaseException:
            self.close()
            raise
        return self._pop_sent(number), reply

    def _pop_sent(self, number: int) -> Ids:
        _, ids = self._sent[number].pop(0)
        self.in_flight[ids] = False
        return ids


def _select(column: Sequence[Any], at: slice | Ids) -> Sequence[Any]:
    return column[at] if isinstance(at, slice) else [column[i] for i in at]
