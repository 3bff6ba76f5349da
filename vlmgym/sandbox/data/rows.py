"""Values of rows: typed fields, references to rows, and the reason why a row is bad."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from pydantic import NonNegativeInt

from vlmgym.errors import VlmgymError, short_repr

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
    """True for a missing value: None, NaN, a blank string, or a list of these."""
    return (
        value is None
        or (isinstance(value, float | Decimal) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
        or (isinstance(value, list | tuple) and all(map(is_empty, value)))
    )


def as_text(value: Any) -> str | None:
    """Write a value as text; None if it is not text, a number, a truth value, a date or a time.

    An integral float becomes an integer, and a time at midnight a date, because pandas stores a column of integers with
    missing values as floats and a column of dates as times. True becomes `yes`.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        value = int(value)
    if isinstance(value, datetime) and value.time() == time() and value.tzinfo is None:
        value = value.date()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value) if isinstance(value, str | int | float) else None


def texts_of(value: Any, name: str) -> tuple[str, ...]:
    """Read a value or a list of values as strings, ignoring empty items; raise `BadRow` if none is left."""
    items = value if isinstance(value, list | tuple) else [value]
    texts = tuple(text_of({name: item}, name) for item in items if not is_empty(item))
    if not texts:
        raise BadRow(f"{name} is empty")
    return texts


def text_of(fields: DataRow, name: str) -> str:
    """Read a field as a stripped string, as written by `as_text`.

    Raises:
        BadRow: The field is empty or too long, has another type, or contains invalid characters.
    """
    value = _value(fields, name)
    text = as_text(value)
    if text is None:
        raise BadRow(f"{name} must be text, got {short_repr(value)}")
    text = text.strip()
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
        number = None if isinstance(value, bool) else decimal_of(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or not math.isfinite(number):
        raise BadRow(f"{name} must be a number, got {short_repr(value)}")
    if not low <= number <= high:
        raise BadRow(f"{name} must be between {low:g} and {high:g}, got {number:g}")
    return number


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
    raise BadRow(f"{name} must be true or false, got {short_repr(value)}")


def _value(fields: DataRow, name: str) -> Any:
    value = fields.get(name)
    if is_empty(value):
        raise BadRow(f"{name} is empty")
    return value
