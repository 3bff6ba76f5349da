"""A table: rows that are read one at a time, from wherever they lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.rows import BadRow, Row


class Table(ABC):
    """Rows by their number, without holding them all in memory. Threads and forked processes may share it.

    Attributes:
        columns: Names of the columns; of rows that need not be alike (JSON), the names found in the first of them.
        folder: The folder that paths of pictures are relative to and may not leave; None: there are no paths.
    """

    columns: tuple[str, ...]
    folder: Path | None

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def __getitem__(self, index: int) -> Row:
        """A row by its number, 0 to `len` - 1.

        Raises:
            BadRow: What stands there is not a row.
        """

    def values(self, column: str) -> Iterator[Any]:
        """The values of one column from the first row to the last; None in a row that is bad or lacks it."""
        for index in range(len(self)):
            try:
                yield self[index].get(column)
            except BadRow:
                yield None


def columns_once(names: Iterable[str], data: object) -> tuple[str, ...]:
    """The names of columns, each of which may come only once.

    Raises:
        UsageError: One comes twice, so that it would not be clear which is meant.
    """
    columns: dict[str, None] = {}
    for name in names:
        if name in columns:
            raise UsageError(f"{data} has the column {name!r} twice")
        columns[name] = None
    return tuple(columns)


class DerivedTable(Table):
    """A table with columns added that follow from the others, such as a path that follows from an identifier."""

    def __init__(self, table: Table, added: tuple[str, ...], derive: Callable[[Row], Row], folder: Path | None) -> None:
        """Args:
        table: The table.
        added: Names of the added columns.
        derive: Their values, from a row; it may raise `BadRow`.
        folder: As `Table.folder`.
        """
        self.columns = (*table.columns, *added)
        self.folder = folder
        self._table = table
        self._derive = derive

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> Row:
        row = self._table[index]
        return {**row, **self._derive(row)}

    def values(self, column: str) -> Iterator[Any]:
        """As `Table.values`."""
        return self._table.values(column) if column in self._table.columns else super().values(column)
