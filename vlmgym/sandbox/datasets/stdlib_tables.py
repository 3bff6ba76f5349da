"""Tables read with the standard library: CSV, JSON lines and JSON arrays."""

from __future__ import annotations

import csv
import json
import os
import weakref
from codecs import BOM_UTF8
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import StateError, UsageError, short_repr
from vlmgym.sandbox.datasets.rows import BadRow, DataRow, Table, unique_columns

MAX_CSV_VALUE = 1 << 26  # characters; a value may be an image as a data URL
MAX_JSON_ARRAY = 1 << 28  # bytes; an array is loaded into memory, unlike JSON lines
ROWS_SCANNED = 100  # rows whose keys become the columns of a JSON table
CHUNK = 1 << 24


class Lines:
    """Sequence of the non-empty lines of a UTF-8 file. Only their offsets are in memory, 8 bytes per line."""

    def __init__(self, path: Path, quotes: bool = False) -> None:
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._path, self._version = path, file_version(os.fstat(self._file))
        self._starts = _line_starts(path, quotes)

    def __len__(self) -> int:
        return self._starts.size - 1

    def __getitem__(self, index: int) -> bytes:
        if file_version(os.fstat(self._file)) != self._version:
            raise StateError(f"{self._path} has changed since it was opened")
        start, end = int(self._starts[index]), int(self._starts[index + 1])
        return os.pread(self._file, end - start, start).rstrip(b"\r\n")


def _line_starts(path: Path, quotes: bool) -> NDArray[np.int64]:
    """Return the byte offset of each non-empty line, followed by the file size.

    With `quotes`, line breaks inside double quotes do not end a line.
    """
    breaks, start, size, quotes_before = [], 0, 0, 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            start = len(BOM_UTF8) if not size and chunk.startswith(BOM_UTF8) else start
            data = np.frombuffer(chunk, np.uint8)
            found = np.flatnonzero(data == ord("\n"))
            if quotes:  # a break after an odd number of quotes is inside quotes; an escaped quote is two quotes
                marks = np.flatnonzero(data == ord('"'))
                found = found[(np.searchsorted(marks, found) + quotes_before) % 2 == 0]
                quotes_before += marks.size
            breaks.append(found + size)
            size += data.size
    if quotes_before % 2:
        raise UsageError(f"{path} has an odd number of double quotes: one is not closed, or not doubled inside quotes")
    ends = np.concatenate([np.empty(0, np.int64), *breaks, [size]])
    starts = np.concatenate([[start], ends[:-1] + 1])
    filled = ends > starts
    short = np.flatnonzero(ends - starts == 1)
    if short.size:
        filled[short] = np.memmap(path, np.uint8, "r")[starts[short]] != ord("\r")
    return np.append(starts[filled], size)


class CsvTable(Table):
    """A CSV file (RFC 4180) whose first line names the columns. All values are strings."""

    def __init__(self, path: Path, delimiter: str = ",") -> None:
        csv.field_size_limit(max(csv.field_size_limit(), MAX_CSV_VALUE))
        self._delimiter = delimiter
        self._lines = Lines(path, quotes=True)
        if not len(self._lines):
            raise UsageError(f"{path} is empty: its first line must name the columns")
        try:
            self.columns = unique_columns(self._values(0), path)
        except BadRow as error:
            raise UsageError(f"the first line of {path} must name the columns, but {error}") from None

    def __len__(self) -> int:
        return len(self._lines) - 1

    def __getitem__(self, index: int) -> DataRow:
        values = self._values(index + 1)
        if len(values) != len(self.columns):
            raise BadRow(f"the line has {len(values)} values for {len(self.columns)} columns")
        return dict(zip(self.columns, values))

    def _values(self, line: int) -> list[str]:
        try:
            return next(csv.reader([self._lines[line].decode()], delimiter=self._delimiter))
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            raise BadRow(f"the line is not CSV: {error}") from None


class JsonTable(Table):
    """A file of JSON objects: one per line, or an array of at most `MAX_JSON_ARRAY` bytes."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            is_array = file.read(1 << 16).removeprefix(BOM_UTF8).lstrip().startswith(b"[")
        if is_array and path.stat().st_size > MAX_JSON_ARRAY:
            raise UsageError(f"JSON array {path} exceeds {MAX_JSON_ARRAY >> 20} MB: write one object per line")
        try:
            self._rows: Any = json.loads(path.read_text(encoding="utf-8-sig")) if is_array else Lines(path)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not JSON: {error}") from None
        names: dict[str, None] = {}
        for index in range(min(len(self), ROWS_SCANNED)):
            with suppress(BadRow):  # reported when the row is read
                names.update(dict.fromkeys(self[index]))
        self.columns = tuple(names)
        if not names:
            raise UsageError(f"{path} has no JSON object in its first {ROWS_SCANNED} rows")

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> DataRow:
        value = self._rows[index]
        try:
            value = json.loads(value) if isinstance(value, bytes) else value
        except (ValueError, RecursionError) as error:
            raise BadRow(f"the line is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise BadRow(f"expected a JSON object, got {short_repr(value)}")
        return value


def file_version(stat: os.stat_result) -> tuple[int, int, int]:
    """Return inode, size and modification time (ns) of a file; at least one changes with its content."""
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
