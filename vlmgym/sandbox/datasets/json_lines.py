"""Tables of JSON: one object a line."""

from __future__ import annotations

import json
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.lines import line_starts
from vlmgym.sandbox.datasets.rows import BadRow, Row, shown
from vlmgym.sandbox.datasets.table import Table

ROWS_WITH_COLUMNS = 100
"""Rows whose keys are taken for the table's columns."""


class JsonLinesTable(Table):
    """A file with one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self._file = path.open("rb")
        self._starts = line_starts(path)
        names: dict[str, None] = {}
        for index in range(min(len(self), ROWS_WITH_COLUMNS)):
            try:
                names.update(dict.fromkeys(self[index]))
            except BadRow:
                continue  # told when its turn comes
        if not names:
            raise UsageError(f"{path} holds no line that is a JSON object")
        self.columns = tuple(names)

    def __len__(self) -> int:
        return self._starts.size - 1

    def __getitem__(self, index: int) -> Row:
        start, end = self._starts[index], self._starts[index + 1]
        self._file.seek(start)
        try:
            row = json.loads(self._file.read(end - start))
        except ValueError as error:
            raise BadRow(f"it is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise BadRow(f"it is not a JSON object but {shown(row)}")
        return row
