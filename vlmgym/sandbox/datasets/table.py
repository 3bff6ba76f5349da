"""The interface that all tables share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.rows import BadRow, Row


class Table(ABC):
    """Rows by index, never all in memory. Safe to share between threads and forked processes.

    Attributes:
        columns: Column names. For JSON, whose rows may differ, the keys found in the first rows.
        folder: Folder that image paths are relative to and may not leave; None if paths are not allowed.
    """

    columns: tuple[str, ...]
    folder: Path | None

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def __getitem__(self, index: int) -> Row:
        """Read the row at an index from 0 to `len - 1`."""

    def values(self, column: str) -> Iterator[Any]:
        """Iterate over one column from the first row to the last; None where a row is bad or has no value."""
        for index in range(len(self)):
            try:
                yield self[index].get(column)
            except BadRow:
                yield None


class DerivedTable(Table):
    """A table with additional columns computed from the others, such as a path that follows from an id."""

    def __init__(self, table: Table, added: tuple[str, ...], derive: Callable[[Row], Row]) -> None:
        """Wrap `table`; `derive` computes the values of the columns `added` from a row and may raise `BadRow`."""
        self.columns = (*table.columns, *added)
        self.folder = table.folder
        self._table = table
        self._derive = derive

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> Row:
        row = self._table[index]
        return {**row, **self._derive(row)}

    def values(self, column: str) -> Iterator[Any]:
        """See `Table.values`."""
        return self._table.values(column) if column in self._table.columns else super().values(column)


def unique_columns(names: Iterable[str], data: object) -> tuple[str, ...]:
    """Check that no column name is repeated."""
    columns: dict[str, None] = {}
    for name in names:
        if name in columns:
            raise UsageError(f"{data} has two columns named {name!r}")
        columns[name] = None
    return tuple(columns)
