"""Parse and format coordinates for games whose actions are cells or pairs of cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from vlmgym.sandbox.core.answer_text import plain, unreadable

Pair = tuple[int, int, int, int]
"""Row and column of the first cell, then of the second, zero-based."""

_CELL = r"(?:\(\s*([+-]?[0-9]{1,4})\s*,\s*([+-]?[0-9]{1,4})\s*\)|\[\s*([+-]?[0-9]{1,4})\s*,\s*([+-]?[0-9]{1,4})\s*\])"
_BETWEEN = r"\s*(?:(?:,|;|and)\s*)?"

_COLUMN = r"col(?:umn)?\s*(?:[:=]\s*)?"
_NUMBERS = rf"(?:row\s*(?:[:=]\s*)?)?([0-9]{{1,4}})\s*(?:,\s*(?:{_COLUMN})?|{_COLUMN})([0-9]{{1,4}})"
_BRACKETED = rf"(?:\(\s*{_NUMBERS}\s*\)|\[\s*{_NUMBERS}\s*\])"
_JOINED = (
    r",\s*and\b|and\b|to\b|with\b|<?[-=]>|[\u2192\u2194\u21d2\u21d4,;&]"
    r"|\\(?:to|(?:left)?rightarrow)\b|\\text\{\s*and\s*\}"
)
_MARK = r"[*_`\"'$]{1,3}"
"""Emphasis, code, quote or LaTeX marks around a single cell."""


def parse_cells(text: str, count: int, origin: int = 0) -> tuple[int, ...]:
    """Parse coordinates `(row, column)` in round or square brackets, separated by spaces, `,`, `;` or `and`.

    Returns the zero-based row and column of each of the `count` cells in turn. In the text, rows and columns are
    numbered from `origin`.
    """
    match = _pattern(count).fullmatch(text.strip())
    if match is None:
        what = {1: "a coordinate", 2: "two coordinates"}.get(count, f"{count} coordinates")
        example = format_cells([number for column in range(count) for number in (0, column)], origin)
        raise unreadable(text, f"{what} like {example}")
    return tuple(int(number) - origin for number in match.groups() if number is not None)


def format_cells(numbers: Sequence[int], origin: int = 0) -> str:
    """Format zero-based rows and columns as in prompts, `(0, 1) (2, 3)`, numbered from `origin`."""
    shown = [number + origin for number in numbers]
    return " ".join(f"({row}, {column})" for row, column in zip(shown[::2], shown[1::2]))


def normalise_cells(text: str, count: int, verbs: Sequence[str] = ()) -> str:
    """Rewrite common spellings of coordinates into the one that `parse_cells` reads; normalise other text with `plain`.

    Accepts unsigned numbers with or without brackets, such as `[[0, 1], [2, 3]]`, `(0,1) -> (2,3)`, `0,1,2,3` or
    `row 0, column 1 and row 2, column 3`, optionally after one of `verbs`.
    """
    text = plain(text)
    verb, _, rest = text.partition(" ")
    cells = rest.strip() if verb.lower() in verbs else text
    spellings = _spellings(count)
    match = spellings.fullmatch(cells)
    if match is None and (cells[:1], cells[-1:]) in (("(", ")"), ("[", "]")):
        match = spellings.fullmatch(cells[1:-1].strip())
    if match is None:
        return text
    numbers = [number for number in match.groups() if number is not None and number.isdigit()]
    return format_cells(list(map(int, numbers)))


@lru_cache
def _spellings(count: int) -> re.Pattern[str]:
    bracketed = [rf"(?:(?P<mark{i}>{_MARK}){_BRACKETED}(?P=mark{i})|{_BRACKETED})" for i in range(count)]
    cells = rf"\s*(?:(?:{_JOINED}|[-\u2013])\s*)?".join(bracketed)
    bare = rf"(?:\s*(?:{_JOINED})\s*|\s+)".join([_NUMBERS] * count)
    return re.compile(f"{cells}|{bare}", re.IGNORECASE | re.ASCII)


@lru_cache
def _pattern(count: int) -> re.Pattern[str]:
    return re.compile(_BETWEEN.join([_CELL] * count), re.IGNORECASE | re.ASCII)
