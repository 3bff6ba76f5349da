"""How well a description of a picture agrees with the truth."""

from __future__ import annotations

import re
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
    expected, seen = read_grid(truth), read_grid(text[:LONGEST_PERCEPTION])
    right = sum(a == b for row, other in zip(expected, seen) for a, b in zip(row, other))
    cells = max(sum(map(len, expected)), sum(map(len, seen)))
    return Perception(right / cells if cells else float(expected == seen), float(expected == seen))


def read_grid(text: str) -> list[list[str]]:
    """The cells of a grid as `compare_grids` compares them: rows of lower-case words without brackets and quotes."""
    grid = []
    for line in text.translate(_BRACKETS).casefold().splitlines():
        cells = _APART.split(line.strip().strip(",|")) if "," in line or "|" in line else line.split()
        if cells:
            grid.append([" ".join(cell.split()) for cell in cells])
    return grid
