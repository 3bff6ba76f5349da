"""Tables of comma-separated values (RFC 4180), or values with tabs between them."""

from __future__ import annotations

import csv
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.lines import Lines
from vlmgym.sandbox.datasets.rows import BadRow, Row
from vlmgym.sandbox.datasets.table import Table

LARGEST_VALUE = 1 << 26
"""Characters of a value, which may be a whole picture as a data URL; Python's own limit is 131072."""


class CsvTable(Table):
    """A CSV file whose first line names the columns; all values are texts. A line break may stand between quotes."""

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        csv.field_size_limit(max(csv.field_size_limit(), LARGEST_VALUE))
        self.folder = path.parent
        self._delimiter = delimiter
        self._lines = Lines(path, quotes=True)
        try:
            names = self._values(0) if len(self._lines) else []
        except BadRow as error:
            raise UsageError(f"the first line of {path} does not name columns: {error}") from None
        if not names or len(set(names)) < len(names):
            raise UsageError(f"the first line of {path} does not name columns, each once")
        self.columns = tuple(names)

    def __len__(self) -> int:
        return len(self._lines) - 1

    def __getitem__(self, index: int) -> Row:
        values = self._values(index + 1)
        if len(values) != len(self.columns):
            raise BadRow(f"the line has {len(values)} values for {len(self.columns)} columns")
        return dict(zip(self.columns, values))

    def _values(self, line: int) -> list[str]:
        try:
            return next(csv.reader([self._lines[line].decode()], delimiter=self._delimiter))
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            raise BadRow(f"the line is not CSV: {error}") from None
