"""Cells in words, as games whose actions are cells, or pairs of them, write and read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from vlmgym.errors import ParseError, shorten

Pair = tuple[int, int, int, int]
"""row 1, column 1, row 2, column 2, counted from 0."""

_CELL = r"(?:\(\s*([+-]?[0-9]{1,4})\s*,\s*([+-]?[0-9]{1,4})\s*\)|\[\s*([+-]?[0-9]{1,4})\s*,\s*([+-]?[0-9]{1,4})\s*\])"
_BETWEEN = r"\s*(?:(?:,|;|and)\s*)?"


def parse_cells(text: str, count: int, origin: int = 0) -> tuple[int, ...]:
    """Read coordinates `(row, column)` in round or square brackets, apart by blanks, a comma, a semicolon or `and`.

    Args:
        text: For instance `(0, 1) (2, 3)` or `[0, 1], [2, 3]`.
        count: How many cells there must be.
        origin: Number of the first row and column in the text.

    Returns:
        Row and column of each cell in turn, counted from 0.

    Raises:
        ParseError: The text is anything else.
    """
    match = _pattern(count).fullmatch(text.strip())
    if match is None:
        what = {1: "a coordinate", 2: "two coordinates"}.get(count, f"{count} coordinates")
        example = format_cells([number for column in range(count) for number in (0, column)], origin)
        raise ParseError(f"the answer {shorten(text, 40)!r} is not {what} like {example}")
    return tuple(int(number) - origin for number in match.groups() if number is not None)


def format_cells(numbers: Sequence[int], origin: int = 0) -> str:
    """Rows and columns in the form that prompts show: `(0, 1) (2, 3)`."""
    shown = [number + origin for number in numbers]
    return " ".join(f"({row}, {column})" for row, column in zip(shown[::2], shown[1::2]))


@lru_cache
def _pattern(count: int) -> re.Pattern[str]:
    return re.compile(_BETWEEN.join([_CELL] * count), re.IGNORECASE)
