"""Tables in processes of their own, which play at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import ray
from ray.exceptions import RayTaskError

from training.easyr1.section import Section
from training.easyr1.table import Asked, Finished, Place, Played, Table
from vlmgym.curriculum import Progress
from vlmgym.errors import VlmgymError
from vlmgym.policies.base import Reply


class Players:
    """One table, or several with the rows dealt out among them."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Make the tables; the arguments are those of `Table`."""
        count = section.players
        self._tables: list[Any] = [Table(section, encoder, seed, model)]
        if count:
            remote = ray.remote(num_cpus=1)(Table)
            self._tables = [remote.remote(section, encoder, seed, model) for _ in range(count)]
        self._apart = bool(count)

    def sit(self, rows: Sequence[int], copies: int, progress: Progress) -> list[Asked]:
        """Begin episodes; see `Table.sit`. The answer is in the order of the rows."""
        return _by_row(self._deal("sit", rows, _itself, copies, progress))

    def sit_held_out(self, rows: Sequence[int]) -> list[Asked]:
        """Begin episodes of validation; see `Table.sit_held_out`."""
        return _by_row(self._deal("sit_held_out", rows, _itself))

    def play(self, replies: Sequence[tuple[Place, Reply]]) -> list[Played]:
        """Play replies; the answer is in their order."""
        found = {(played.row, played.copy): played for played in self._deal("play", replies, _row_of)}
        return [found[place] for place, _ in replies]

    def beyond(self) -> list[tuple[Place, Asked]]:
        """What would be asked next in episodes that were cut off; see `Table.beyond`."""
        return self._all("beyond")

    def leave(self, copies: int | None) -> list[Finished]:
        """End all episodes; see `Table.leave`. The answer is in the order of rows and copies."""
        return sorted(self._all("leave", copies), key=lambda one: (one.row, one.copy))

    def _all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all tables."""
        return list(chain.from_iterable(self._gather([self._call(table, method, *args) for table in self._tables])))

    def _deal(self, method: str, items: Sequence[Any], row: Callable[[Any], int], *args: Any) -> list[Any]:
        """Call a method of each table with those of the items whose rows are its own."""
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
                raise error.cause from None  # its own words, not the traceback of that process
            raise
        return found


def _itself(row: int) -> int:
    return row


def _row_of(reply: tuple[Place, Reply]) -> int:
    return reply[0][0]


def _by_row(asked: list[Asked]) -> list[Asked]:
    return sorted(asked, key=lambda one: one.row)
