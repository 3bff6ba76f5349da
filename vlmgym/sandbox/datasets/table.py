"""A table: rows that are read one at a time, from wherever they lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from vlmgym.sandbox.datasets.rows import Row


class Table(ABC):
    """Rows by their number, without holding them all in memory.

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
