"""Map the rows of a table to the fields and images of a task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from PIL import Image

from vlmgym.errors import UsageError, short_repr
from vlmgym.sandbox.datasets.images import decode, image_bytes
from vlmgym.sandbox.datasets.rows import BadRow, DataRow, Table, content_hash, is_empty

ID = "id"
"""Optional field of every task. A row that repeats the id of an earlier row is bad."""
ID_COLUMNS = ("identifier", "question_id", "uuid", "id")
MAX_COMPARED = 200_000
"""Maximum number of rows in a table whose ids are compared during play; `vlmgym data check` compares any number."""


@dataclass(frozen=True)
class Example:
    """Fields and decoded RGB images of a row, and a hash of its fields and encoded images. A missing field is None."""

    fields: DataRow
    images: tuple[Image.Image, ...]
    digest: str


class Source:
    """A table whose columns are mapped to the fields of a task.

    `columns` maps each field to its column, as returned by `map_columns`; for `hosts`, see `image_bytes`.
    """

    def __init__(
        self,
        table: Table,
        columns: Mapping[str, str | None],
        image_fields: tuple[str, ...],
        hosts: Collection[str] | None = None,
    ) -> None:
        self.table = table
        self._columns = columns
        self._image_fields = image_fields
        self._hosts = hosts

    def __len__(self) -> int:
        return len(self.table)

    def read(self, index: int) -> Example:
        """Read a row and decode its images; raise `BadRow` if its id is repeated or an image cannot be decoded."""
        row = self.table[index]
        if (earlier := self._repeated_ids.get(index)) is not None:
            raise BadRow(f"its id {short_repr(_lookup(row, str(self._columns[ID])))} is also the id of row {earlier}")
        fields = {field: None if column is None else _lookup(row, column) for field, column in self._columns.items()}
        encoded = [image_bytes(fields.pop(field), self.table.folder, self._hosts) for field in self._image_fields]
        return Example(fields, tuple(map(decode, encoded)), content_hash(fields, encoded))

    def compare_ids(self, count: int) -> None:
        """Find repeated ids in the first `count` rows, so that `read` rejects rows that repeat an earlier id.

        Needs about 40 bytes per row. Tables of up to `MAX_COMPARED` rows are compared automatically; call this for
        larger ones.
        """
        column = self._columns[ID]
        if column is None:
            self._repeated_ids = {}
            return
        name = column if column in self.table.columns else column.partition(".")[0]
        ids = (_lookup({name: value}, column) for value in self.table.values(name))
        hashes = np.fromiter((_hash(value, index) for index, value in zip(range(count), ids)), np.uint64, count)
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        repeated = np.flatnonzero(first[group] != np.arange(count))
        self._repeated_ids = dict(zip(repeated.tolist(), first[group[repeated]].tolist()))

    @cached_property
    def _repeated_ids(self) -> Mapping[int, int]:
        """Index of the first row with the same id, keyed by the index of each row that repeats an id."""
        if len(self) > MAX_COMPARED:
            return {}
        self.compare_ids(len(self))
        return self._repeated_ids


def _hash(value: Any, index: int) -> int:
    """Hash an id to 64 bits; without an id, hash the row's index, so that such rows do not match."""
    text = f"row {index}" if is_empty(value) else f"id {value}"
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def map_columns(
    names: Mapping[str, tuple[str, ...]], optional: frozenset[str], chosen: tuple[str, ...], table: Table, data: str
) -> dict[str, str | None]:
    """Return the column of each field, or None for an optional field without a column; add the field `id`.

    Args:
        names: Accepted column names of each field; the first one in the table is used.
        optional: Fields that may lack a column.
        chosen: The user's choices, `FIELD=COLUMN`, which take precedence. `field=column.key` and `field=column.0` look
            into objects and lists; `field=` drops an optional field.
        table: The table.
        data: Name of the data in error messages.

    Raises:
        UsageError: A choice is invalid, or a required field has no column.
    """
    names, optional = {ID: ID_COLUMNS, **names}, optional | {ID}
    existing = f"the columns of {data} are {', '.join(table.columns)}"
    columns: dict[str, str | None] = {}
    for text in chosen:
        field, equals, column = text.partition("=")
        if not equals or field not in names:
            raise UsageError(f"columns must be FIELD=COLUMN with a field of {', '.join(names)}, got {text!r}")
        if not column and field in optional:
            columns[field] = None
            continue
        if column not in table.columns and column.partition(".")[0] not in table.columns:
            raise UsageError(f"there is no column {column!r} for {field}: {existing}")
        columns[field] = column
    for field, candidates in names.items():
        found = columns.setdefault(field, next((name for name in candidates if name in table.columns), None))
        if found is None and field not in optional:
            raise UsageError(
                f"there is no column for {field} ({' or '.join(candidates)}): {existing}; choose one with columns="
            )
    return columns


def _lookup(row: DataRow, column: str) -> Any:
    """Read a column of a row, following the keys and list indices after dots; None if any of these is missing."""
    if column in row:
        return row[column]
    name, *path = column.split(".")
    value = row.get(name)
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def shuffled(index: int, count: int) -> int:
    """Apply a fixed pseudorandom permutation of `range(count)` to an index, in constant memory.

    A Feistel network permutes the numbers below the next power of four. A result outside `range(count)` is permuted
    again until it falls inside (cycle walking), which takes at most three extra passes on average.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    row = index
    while True:
        left, right = row >> half, row & low
        for step in range(6):
            left, right = right, left ^ (_mix(right + (step << 32) + (count << 40)) & low)
        row = left << half | right
        if row < count:
            return row


def _mix(number: int) -> int:
    """Mix 64 bits: one step of splitmix64 (Steele, Lea and Flood, 2014) from the state `number`."""
    number = (number + 0x9E3779B97F4A7C15) & _64_BITS
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return number ^ (number >> 31)


_64_BITS = (1 << 64) - 1
