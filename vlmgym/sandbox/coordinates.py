"""Two cells in words, as games that act on pairs of cells write and read them."""

from __future__ import annotations

import re

from vlmgym.errors import ParseError

Pair = tuple[int, int, int, int]
"""row 1, column 1, row 2, column 2, counted from 0."""

_CELL = r"(?:\(\s*([+-]?[0-9]{1,4})\s*,\s*([+-]?[0-9]{1,4})\s*\)|\[\s*([+-]?[0-9]{1,4})\s*,\s*([+-]?[0-9]{1,4})\s*\])"
_PAIR = re.compile(rf"{_CELL}\s*(?:,|;|and)?\s*{_CELL}", re.IGNORECASE)


def parse_pair(text: str, origin: int = 0) -> Pair:
    """Read two coordinates `(row, column)` in round or square brackets, apart by blanks, a comma, a semicolon or `and`.

    Args:
        text: For instance `(0, 1) (2, 3)` or `[0, 1], [2, 3]`.
        origin: Number of the first row and column in the text.

    Raises:
        ParseError: The text is anything else.
    """
    match = _PAIR.fullmatch(text.strip())
    if match is None:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise ParseError(
            f"the answer {shown!r} is not two coordinates like ({origin}, {origin}) ({origin}, {origin + 1})"
        )
    a, b, c, d = (int(number) - origin for number in match.groups() if number is not None)
    return a, b, c, d


def format_pair(pair: Pair, origin: int = 0) -> str:
    """Two coordinates in the form that prompts show: `(0, 1) (2, 3)`."""
    a, b, c, d = (number + origin for number in pair)
    return f"({a}, {b}) ({c}, {d})"
