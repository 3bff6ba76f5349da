"""Tables, their rows, and functions that read typed values from a row."""

from __future__ import annotations

import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt

from vlmgym.errors import UsageError, VlmgymError, short_repr

DataRow = Mapping[str, Any]
"""The values of a row, keyed by column name or by field of a task."""

DECIMAL = r"[+\-\u2212]?(?:[0-9]{1,15}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:[eE]-[0-9]{1,3})?\.?"
"""A decimal number: optional sign (also U+2212), ASCII digits, optional negative exponent, optional final full stop."""
_DECIMAL = re.compile(DECIMAL)
MAX_TEXT = 20_000
"""Maximum number of characters of a text field."""
EXACT = 2.0**53
"""Floats represent all integers up to this magnitude exactly."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
"""Control characters except tabs and line breaks."""


class BadRow(VlmgymError):
    """A row cannot be turned into a question. The message gives the reason but not the index of the row."""


@dataclass(frozen=True)
class RowRef:
    """Reference to a row of user data: its index, and a hash of the fields and images that the task uses."""

    data: str
    index: NonNegativeInt
    digest: str


@dataclass(frozen=True)
class SkippedRow:
    """Index of a bad row that was skipped, and the reason."""

    index: int
    reason: str


def content_hash(fields: DataRow, images: Iterable[bytes]) -> str:
    """Return a hash of a row's fields and encoded images: 32 hexadecimal digits."""
    content = [fields, [hashlib.sha256(image).hexdigest() for image in images]]
    text = json.dumps(content, sort_keys=True, default=repr)  # repr also distinguishes b"1" from "1"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_empty(value: Any) -> bool:
    """True for a missing value: None, NaN or a blank string."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )


def text_of(fields: DataRow, name: str) -> str:
    """Read a field as a stripped string.

    Numbers are converted to text. An integral float becomes an integer first, because pandas stores a column of
    integers with missing values as floats.

    Raises:
        BadRow: The field is empty, too long, or not text or a number, or it contains invalid characters.
    """
    value = _value(fields, name)
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise BadRow(f"{name} must be text, got {short_repr(value)}")
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        value = int(value)
    text = str(value).strip()
    if len(text) > MAX_TEXT:
        raise BadRow(f"{name} has {len(text)} characters, more than {MAX_TEXT}")
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, which JSON allows
        raise BadRow(f"{name} is not valid Unicode: {short_repr(value)}") from None
    if control := _CONTROL.search(text):
        raise BadRow(f"{name} contains the control character {control[0]!r}")
    return text


def number_of(fields: DataRow, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Read a field as a finite number from `low` to `high`; strings are parsed by `decimal_of`.

    Raises:
        BadRow: The field is empty, not a number, or out of range.
    """
    value = _value(fields, name)
    try:
        parsed = None if isinstance(value, bool) else decimal_of(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        parsed = None
    if parsed is None or not math.isfinite(parsed):
        raise BadRow(f"{name} must be a number, got {short_repr(value)}")
    if not low <= parsed <= high:
        raise BadRow(f"{name} must be between {low:g} and {high:g}, got {parsed:g}")
    return parsed


def decimal_of(text: str) -> float | None:
    """Parse a number such as `-33.87`, ignoring surrounding whitespace; None if the text is anything else."""
    text = text.strip()
    return float(text.rstrip(".").replace("\u2212", "-")) if _DECIMAL.fullmatch(text) else None


def truth_of(fields: DataRow, name: str) -> bool:
    """Read a field as a boolean: true or false in any case, 1 or 0; raise `BadRow` for anything else."""
    value = _value(fields, name)
    word = str(value).strip().casefold()
    if word in ("true", "1", "1.0"):
        return True
    if word in ("false", "0", "0.0"):
        return False
    if word in ("-1", "-1.0"):
        raise BadRow(f"{name} is {word}: the row is unlabelled")
    raise BadRow(f"{name} must be true or false, got {short_repr(value)}")


def _value(fields: DataRow, name: str) -> Any:
    value = fields.get(name)
    if is_empty(value):
        raise BadRow(f"{name} is empty")
    return value


class Table(ABC):
    """A sequence of rows, read on access. Safe to share between threads and forked processes.

    Attributes:
        columns: Column names. JSON rows may have different keys; the columns come from the first rows.
        folder: Folder that image paths are relative to and must stay inside; None if paths are not allowed.
        stem: Name of the file without its suffix, such as `test`; empty if the table was not read from a single file.
    """

    columns: tuple[str, ...]
    folder: Path | None
    stem: str = ""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def __getitem__(self, index: int) -> DataRow:
        """Read the row at an index from 0 to `len(self) - 1`; raise `BadRow` if it is malformed."""

    def values(self, column: str) -> Iterator[Any]:
        """Yield the values of a column from the first row to the last; None where a row is bad or has no value."""
        for index in range(len(self)):
            try:
                yield self[index].get(column)
            except BadRow:
                yield None


class DerivedTable(Table):
    """A table with additional columns computed from the others, such as an image path computed from an id."""

    def __init__(self, table: Table, added: tuple[str, ...], derive: Callable[[DataRow], DataRow]) -> None:
        """Wrap `table`. `derive` maps a row to the values of the `added` columns and may raise `BadRow`."""
        self.columns = (*table.columns, *added)
        self.folder, self.stem = table.folder, table.stem
        self._table = table
        self._derive = derive

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> DataRow:
        row = self._table[index]
        return {**row, **self._derive(row)}

    def values(self, column: str) -> Iterator[Any]:
        """See `Table.values`."""
        return self._table.values(column) if column in self._table.columns else super().values(column)


def unique_columns(names: Iterable[str], data: object) -> tuple[str, ...]:
    """Return column names as a tuple; if one is repeated, raise a `UsageError` that names `data`."""
    columns: dict[str, None] = {}
    for name in names:
        if name in columns:
            raise UsageError(f"{data} has two columns named {name!r}")
        columns[name] = None
    return tuple(columns)
