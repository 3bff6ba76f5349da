"""Tables, their rows, and the typed values that tasks read from them."""

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
"""The values of a row by column name."""

DECIMAL = r"[+\-\u2212]?(?:[0-9]{1,15}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:[eE]-[0-9]{1,3})?\.?"
"""Optional sign (also U+2212), ASCII digits, optional negative exponent, optional full stop."""
_DECIMAL = re.compile(DECIMAL)
MAX_TEXT = 20_000
"""Maximum number of characters of a text in a prompt."""
EXACT = 2.0**53
"""Largest magnitude up to which floats represent all integers exactly."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
"""Control characters except tabs and line breaks."""


class BadRow(VlmgymError):
    """A row that cannot become a question. The message gives the reason, without the row's index."""


@dataclass(frozen=True)
class RowRef:
    """Reference to a row of the data that the user named, with the hash of the fields and images that are used."""

    data: str
    index: NonNegativeInt
    digest: str


@dataclass(frozen=True)
class SkippedRow:
    """A bad row that was skipped, and why."""

    index: int
    reason: str


def content_hash(fields: DataRow, images: Iterable[bytes]) -> str:
    """Hash the fields and encoded images of a row to 32 hexadecimal digits."""
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

    Numbers are converted; an integral float becomes an integer, because pandas stores integers with gaps as floats.
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
    """Read a field as a finite number; strings are parsed by `decimal_of`."""
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
    """Read a field as a boolean: true or false in upper or lower case, 1 or 0."""
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
    """Rows by index, never all in memory. Safe to share between threads and forked processes.

    Attributes:
        columns: Column names. For JSON, whose rows may differ, the keys found in the first rows.
        folder: Folder that image paths are relative to and may not leave; None if paths are not allowed.
        stem: Name of the file without its suffix, such as a split; empty for several files.
    """

    columns: tuple[str, ...]
    folder: Path | None
    stem: str = ""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def __getitem__(self, index: int) -> DataRow:
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

    def __init__(self, table: Table, added: tuple[str, ...], derive: Callable[[DataRow], DataRow]) -> None:
        """Wrap `table`; `derive` computes the values of the columns `added` from a row and may raise `BadRow`."""
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
    """Check that no column name is repeated."""
    columns: dict[str, None] = {}
    for name in names:
        if name in columns:
            raise UsageError(f"{data} has two columns named {name!r}")
        columns[name] = None
    return tuple(columns)
