"""Rows of data: which one a question comes from, what is wrong with a bad one, and values out of their fields."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vlmgym.errors import VlmgymError, shorten
from vlmgym.sandbox.decimals import decimal_of

Row = Mapping[str, Any]
"""The values of one row by the name of their column."""

LONGEST_SHOWN = 60
"""Characters of a value that a message shows."""
LONGEST_TEXT = 20_000
"""Characters of a text that a question is made of."""
EXACT = 2.0**53
"""Up to here floats tell all integers apart."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
"""Control characters; a line may end and a tab may stand in a text."""


class BadRow(VlmgymError):
    """A row that no question can be made of; the message says why, without the row's number."""


@dataclass(frozen=True)
class RowRef:
    """Which row of which data.

    Attributes:
        data: What the user named as `data`.
        index: Number of the row, from 0.
        digest: Hash of what the task uses of the row, its pictures included: 32 hexadecimal digits.
    """

    data: str
    index: int
    digest: str


@dataclass(frozen=True)
class SkippedRow:
    """A bad row that was passed over.

    Attributes:
        index: Number of the row, from 0.
        reason: What is wrong with it.
    """

    index: int
    reason: str


def digest_of(fields: Row, pictures: Iterable[bytes]) -> str:
    """32 hexadecimal digits that differ if a field or a picture does."""
    content = [fields, [hashlib.sha256(picture).hexdigest() for picture in pictures]]
    text = json.dumps(content, sort_keys=True, default=_as_text)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _as_text(value: Any) -> str:
    """A value JSON has no form for, such as bytes or a date; `repr` tells those of equal `str` apart."""
    return repr(value)


# Values of fields -----------------------------------------------------------------------------------------------------


def is_empty(value: Any) -> bool:
    """Whether a field has no value: None, NaN, or a text of blanks."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )


def text_of(fields: Row, name: str) -> str:
    """A field as a text without blanks around it; a number is written out.

    An integral float is written as an integer, because a column of integers with a gap is one of floats in pandas.

    Raises:
        BadRow: It is empty, neither a text nor a number, longer than `LONGEST_TEXT`, or has control characters other
            than line breaks and tabs, or characters that are no Unicode.
    """
    value = _value(fields, name)
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise BadRow(f"{name} is no text but {shown(value)}")
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        value = int(value)
    text = str(value).strip()
    if len(text) > LONGEST_TEXT:
        raise BadRow(f"{name} has {len(text)} characters, more than {LONGEST_TEXT}")
    if not is_unicode(text):
        raise BadRow(f"{name} is no Unicode text: {shown(value)}")
    if control := _CONTROL.search(text):
        raise BadRow(f"{name} has the control character {control[0]!r}")
    return text


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8, unlike one with half a surrogate pair, which JSON lets through."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def number_of(fields: Row, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A field as a number; a text that `decimal_of` reads, such as "48.85", will do.

    Raises:
        BadRow: It is empty, no finite number, or not between `low` and `high`.
    """
    value = _value(fields, name)
    try:
        read = None if isinstance(value, bool) else decimal_of(value) if isinstance(value, str) else float(value)
        number = math.nan if read is None else read
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f"{name} is no number but {shown(value)}")
    if not low <= number <= high:
        raise BadRow(f"{name} is {number:g}, which is not between {low:g} and {high:g}")
    return number


def truth_of(fields: Row, name: str) -> bool:
    """A field as true or false: a bool, 0 or 1, or such a word in any case.

    Raises:
        BadRow: It is empty or anything else; -1, which unlabelled rows of the hub have, is told as that.
    """
    value = _value(fields, name)
    word = str(value).strip().casefold()
    if word in ("true", "1", "1.0"):
        return True
    if word in ("false", "0", "0.0"):
        return False
    if word in ("-1", "-1.0"):
        raise BadRow(f"{name} is {word}: the row is unlabelled")
    raise BadRow(f"{name} is neither true nor false but {shown(value)}")


def _value(fields: Row, name: str) -> Any:
    value = fields.get(name)
    if is_empty(value):
        raise BadRow(f"{name} is empty")
    return value


def shown(value: Any) -> str:
    """A value as a message shows it, on one short line."""
    return shorten(repr(value), LONGEST_SHOWN)
