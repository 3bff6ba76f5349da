"""Score descriptions of an image against the ground truth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from operator import eq
from typing import NamedTuple

LONGEST_PERCEPTION = 100_000
"""Maximum number of characters compared; no board needs more."""

_APART = re.compile(r"[,|]")
_BRACKETS = str.maketrans("", "", "[](){}\"'")


class Perception(NamedTuple):
    """Accuracy of a description of the image.

    Attributes:
        partial: Fraction of correct cells, 0 to 1.
        exact: 1.0 if all cells are correct and there are no extra cells, else 0.0.
    """

    partial: float
    exact: float


def compare_grids(truth: str, text: str) -> Perception:
    """Compare two grids written as one line per row, with cells separated by commas or bars, or else by spaces.

    Case, brackets, quotes and empty lines are ignored. `partial` is the number of matching cells divided by the number
    of cells in the larger grid, so extra and missing cells cost the same.
    """
    expected = read_grid(truth)
    right, written, equal = 0, 0, True
    for row, seen in zip_longest(expected, _rows(text[:LONGEST_PERCEPTION]), fillvalue=()):
        right += sum(map(eq, row, seen))
        written += len(seen)
        equal = equal and row == seen
    cells = max(sum(map(len, expected)), written)
    return Perception(right / cells if cells else float(equal), float(equal))


def read_grid(text: str) -> list[list[str]]:
    """Parse a grid as `compare_grids` does: rows of lower-case words without brackets and quotes."""
    return [*_rows(text)]


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.translate(_BRACKETS).casefold().splitlines():
        if "," in line or "|" in line:
            yield [" ".join(cell.split()) for cell in _APART.split(line.strip().strip(",|"))]
        elif cells := line.split():
            yield cells
