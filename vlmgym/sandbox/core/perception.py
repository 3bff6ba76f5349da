"""How well a description of an image agrees with the truth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from operator import eq
from typing import NamedTuple

LONGEST_PERCEPTION = 100_000
"""Characters of a perception that are looked at; what follows cannot describe a board."""

_APART = re.compile(r"[,|]")
_BRACKETS = str.maketrans("", "", "[](){}\"'")


class Perception(NamedTuple):
    """Agreement of a description with the state.

    Attributes:
        partial: Share of cells that are right, 0 to 1.
        exact: 1.0 if everything is right and nothing is added, else 0.0.
    """

    partial: float
    exact: float


def compare_grids(truth: str, text: str) -> Perception:
    """Compare two grids written as one line a row, cells apart by commas, bars or (without any) spaces.

    Case, brackets, quotes and empty lines do not count. `partial` is the number of cells that are equal at the same row
    and column over the number of cells of the larger grid, so that added cells cost as much as missing ones.
    """
    expected = read_grid(truth)
    right, told, equal = 0, 0, True
    for row, seen in zip_longest(expected, _rows(text[:LONGEST_PERCEPTION]), fillvalue=()):
        right += sum(map(eq, row, seen))
        told += len(seen)
        equal = equal and row == seen
    cells = max(sum(map(len, expected)), told)
    return Perception(right / cells if cells else float(equal), float(equal))


def read_grid(text: str) -> list[list[str]]:
    """The cells of a grid as `compare_grids` compares them: rows of lower-case words without brackets and quotes."""
    return [*_rows(text)]


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.translate(_BRACKETS).casefold().splitlines():
        if "," in line or "|" in line:
            yield [" ".join(cell.split()) for cell in _APART.split(line.strip().strip(",|"))]
        elif cells := line.split():
            yield cells
