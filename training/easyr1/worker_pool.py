"""A pool of rollout workers that play in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import ray
from ray.exceptions import RayTaskError

from training.easyr1.rollout_worker import EpisodeResult, Place, Request, RolloutWorker, StepResult
from training.easyr1.section import Section
from vlmgym.curriculum import Progress
from vlmgym.errors import VlmgymError
from vlmgym.policies.base import Reply


class WorkerPool:
    """One rollout worker, or several with the rows distributed among them."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Start the workers; see `RolloutWorker` for the arguments."""
        count = section.players
        self._tables: list[Any] = [RolloutWorker(section, encoder, seed, model)]
        if count:
            remote = ray.remote(num_cpus=1)(RolloutWorker)
            self._tables = [remote.remote(section, encoder, seed, model) for _ in range(count)]
        self._apart = bool(count)

    def start(self, rows: Sequence[int], copies: int, progress: Progress) -> list[Request]:
        """Start episodes, in the order of the rows; see `RolloutWorker.start`."""
        return _by_row(self._deal("start", rows, _itself, copies, progress))

    def start_validation(self, rows: Sequence[int]) -> list[Request]:
        """Start validation episodes; see `RolloutWorker.start_validation`."""
        return _by_row(self._deal("start_validation", rows, _itself))

    def play(self, replies: Sequence[tuple[Place, Reply]]) -> list[StepResult]:
        """Play replies, in order."""
        found = {(played.row, played.copy): played for played in self._deal("play", replies, _row_of)}
        return [found[place] for place, _ in replies]

    def bootstrap_requests(self) -> list[tuple[Place, Request]]:
        """Return the next requests of truncated episodes; see `RolloutWorker.bootstrap_requests`."""
        return self._all("bootstrap_requests")

    def finish(self, copies: int | None) -> list[EpisodeResult]:
        """Finish all episodes, ordered by row and copy; see `RolloutWorker.finish`."""
        return sorted(self._all("finish", copies), key=lambda one: (one.row, one.copy))

    def _all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all workers."""
        return list(chain.from_iterable(self._gather([self._call(table, method, *args) for table in self._tables])))

    def _deal(self, method: str, items: Sequence[Any], row: Callable[[Any], int], *args: Any) -> list[Any]:
        """Call a method of each worker with the items of its rows."""
        count = len(self._tables)
        hands = [[item for item in items if row(item) % count == place] for place in range(count)]
        calls = [self._call(table, method, hand, *args) for table, hand in zip(self._tables, hands) if hand]
        return list(chain.from_iterable(self._gather(calls)))

    def _call(self, table: Any, method: str, *args: Any) -> Any:
        bound = getattr(table, method)
        return bound.remote(*args) if self._apart else bound(*args)

    def _gather(self, calls: list[Any]) -> list[Any]:
        if not self._apart:
            return calls
        try:
            found: list[Any] = ray.get(calls)
        except RayTaskError as error:
            if isinstance(error.cause, VlmgymError):
                raise error.cause from None  # without the traceback of the worker
            raise
        return found


def _itself(row: int) -> int:
    return row


def _row_of(reply: tuple[Place, Reply]) -> int:
    return reply[0][0]


def _by_row(asked: list[Request]) -> list[Request]:
    return sorted(asked, key=lambda one: one.row)
