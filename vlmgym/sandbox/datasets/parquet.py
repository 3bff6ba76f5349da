"""Tables of Parquet files: one, or several that follow one another."""

from __future__ import annotations

import fcntl
import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.arrow import ArrowRow, labels_of, plain_values
from vlmgym.sandbox.datasets.cache import cache_folder
from vlmgym.sandbox.datasets.extra import library, one_line
from vlmgym.sandbox.datasets.rows import BadRow, Row
from vlmgym.sandbox.datasets.table import Table, columns_once

LARGEST_GROUP = 1 << 24
"""Bytes of a row group that is decoded whole to get at one of its rows."""
MOST_ROWS = 10_000
"""Rows of such a row group, in a file of more groups than are kept."""
GROUPS_KEPT = 4
BATCH_BYTES = 1 << 23
"""About as many bytes are written at once when a file is copied."""
MOST_IN_BATCH = 1 << 16
"""Rows that are written at once at most."""


class ParquetTable(Table):
    """Parquet files of the same columns, one after the other.

    Only whole row groups can be decoded. A few decoded ones are kept; a file of too large row groups is
    copied once into the cache as an Arrow file, any row of which can be read from the disk.
    """

    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        """Args:
        paths: The files, at least one.
        folder: As `Table.folder`.

        Raises:
            UsageError: One cannot be read, or has other columns than the first.
        """
        parts = [part for path in paths for part in _parts(path)]
        schema = parts[0].schema
        for part in parts:
            if part.schema.names != schema.names:
                raise UsageError(f"{part.path} has other columns than {parts[0].path}")
        self.folder = folder
        self.columns = columns_once(schema.names, parts[0].path)
        self._labels = labels_of(schema)
        self._parts = parts
        self._ends: list[int] = list(accumulate(part.rows for part in parts))
        self._decoded = lru_cache(maxsize=GROUPS_KEPT)(self._read)

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Row:
        number = bisect_right(self._ends, index)
        start = self._ends[number] - self._parts[number].rows
        return ArrowRow(self._decoded(number).slice(index - start, 1), self._labels)

    def values(self, column: str) -> Iterator[Any]:
        """As `Table.values`, reading nothing but the column."""
        for number, part in enumerate(self._parts):
            try:
                found = self._read(number, [column])
            except BadRow:
                yield from repeat(None, part.rows)
            else:
                yield from plain_values(found.column(0))

    def _read(self, number: int, columns: list[str] | None = None) -> Any:
        """A part as a `pyarrow.Table`.

        Raises:
            BadRow: Its bytes are damaged.
            UsageError: The file can no longer be read.
        """
        part = self._parts[number]
        try:
            return part.read(columns)
        except (library("pyarrow", "reading Parquet").ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # none where Arrow itself finds damage
                raise UsageError(f"{part.path} cannot be read: {error.strerror}") from None
            raise BadRow(f"its row group is damaged: {one_line(error)}") from None


class RowGroup:
    """A row group of a Parquet file."""

    def __init__(self, path: Path, schema: Any, metadata: Any, number: int) -> None:
        self.path, self.schema = path, schema
        self._metadata, self._number = metadata, number
        self.rows: int = metadata.row_group(number).num_rows

    def read(self, columns: list[str] | None = None) -> Any:
        """The rows as a `pyarrow.Table`; the file is opened anew, so that processes and threads share nothing."""
        parquet = library("pyarrow.parquet", "reading Parquet")
        with parquet.ParquetFile(self.path, metadata=self._metadata) as file:
            return file.read_row_group(self._number, columns)


class ArrowCopy:
    """A copy of a Parquet file as an Arrow file, mapped into memory."""

    def __init__(self, path: Path, copy: Path) -> None:
        pa = library("pyarrow", "reading Parquet")
        self.path = path
        self._table = pa.ipc.open_file(pa.memory_map(str(copy))).read_all()
        self.schema = self._table.schema
        self.rows: int = self._table.num_rows

    def read(self, columns: list[str] | None = None) -> Any:
        """The rows as a `pyarrow.Table`."""
        return self._table if columns is None else self._table.select(columns)


def _parts(path: Path) -> list[Any]:
    pa, parquet = library("pyarrow", "reading Parquet"), library("pyarrow.parquet", "reading Parquet")
    try:
        with parquet.ParquetFile(path) as file:
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            few = len(groups) <= GROUPS_KEPT
            small = groups and all(group.total_byte_size <= LARGEST_GROUP for group in groups)
            if small and (few or all(group.num_rows <= MOST_ROWS for group in groups)):
                schema, metadata = file.schema_arrow, file.metadata
                return [RowGroup(path, schema, metadata, number) for number in range(len(groups))]
            return [ArrowCopy(path, _copy(path, file))]
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {one_line(error)}") from None


def _copy(path: Path, file: Any) -> Path:
    """The copy of a file in the cache, made if it is not there; other processes wait for the one that makes it."""
    pa = library("pyarrow", "reading Parquet")
    facts = path.stat()
    identity = f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}"
    copy = cache_folder("tables") / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.arrow"
    with copy.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not copy.exists():
            size = sum(file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
            rows = min(max(1, BATCH_BYTES * file.metadata.num_rows // max(size, 1)), MOST_IN_BATCH)
            unfinished = copy.with_suffix(".part")
            with pa.OSFile(str(unfinished), "wb") as out, pa.ipc.new_file(out, file.schema_arrow) as writer:
                for batch in file.iter_batches(rows):
                    writer.write_batch(batch)
            os.replace(unfinished, copy)
    return copy
