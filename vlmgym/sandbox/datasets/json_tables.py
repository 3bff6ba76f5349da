"""Tables of JSON: one object a line, or an array of objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.lines import Lines
from vlmgym.sandbox.datasets.rows import BadRow, Row, shown
from vlmgym.sandbox.datasets.table import Table

ROWS_WITH_COLUMNS = 100
"""Rows whose keys are taken for the table's columns."""
LARGEST_ARRAY = 1 << 28
"""Bytes of a JSON array, which is read whole, unlike lines."""


class JsonLinesTable(Table):
    """A file with one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self._lines = Lines(path)
        self.columns = _columns(self, path)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> Row:
        try:
            value = json.loads(self._lines[index])
        except (ValueError, RecursionError) as error:
            raise BadRow(f"the line is not JSON: {error}") from None
        return _row(value)


class JsonArrayTable(Table):
    """A file that holds an array of JSON objects; it is kept in memory."""

    def __init__(self, path: Path) -> None:
        if path.stat().st_size > LARGEST_ARRAY:
            raise UsageError(f"{path} is a JSON array of more than {LARGEST_ARRAY >> 20} MB: write one object a line")
        try:
            self._rows: list[Any] = json.loads(path.read_text(encoding="utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not JSON: {error}") from None
        self.folder = path.parent
        self.columns = _columns(self, path)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        return _row(self._rows[index])


def open_json(path: Path) -> Table:
    """A table of the file's JSON objects, which stand one a line or in an array.

    Raises:
        UsageError: The file holds no JSON object.
    """
    with path.open("rb") as file:
        start = file.read(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n")
    return JsonArrayTable(path) if start.startswith(b"[") else JsonLinesTable(path)


def _row(value: Any) -> Row:
    if not isinstance(value, dict):
        raise BadRow(f"there is no JSON object but {shown(value)}")
    return value


def _columns(table: Table, path: Path) -> tuple[str, ...]:
    """The keys of the first rows."""
    names: dict[str, None] = {}
    for index in range(min(len(table), ROWS_WITH_COLUMNS)):
        try:
            names.update(dict.fromkeys(table[index]))
        except BadRow:
            continue  # told when its turn comes
    if not names:
        raise UsageError(f"{path} holds no JSON object, at least not in its first {ROWS_WITH_COLUMNS} rows")
    return tuple(names)
