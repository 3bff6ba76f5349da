"""Score descriptions of an image against the ground truth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import starmap, zip_longest
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
    correct, stated, equal = 0, 0, True
    for true_row, stated_row in zip_longest(expected, _rows(text[:LONGEST_PERCEPTION]), fillvalue=()):
        correct += sum(map(eq, true_row, stated_row))
        stated += len(stated_row)
        equal = equal and true_row == stated_row
    cells = max(sum(map(len, expected)), stated)
    return Perception(correct / cells if cells else float(equal), float(equal))


def compare_changes(before: str, after: str, text: str) -> Perception:
    """Compare a predicted grid with the true one after a move, by the cells that change.

    Grids are read as by `compare_grids`. `partial` is the fraction of correct cells among those that differ from the
    grid before in the true grid, in the predicted one, or in both, so cells that only seem to change count as wrong.
    """
    true_rows, stated_rows = read_grid(after), [*_rows(text[:LONGEST_PERCEPTION])]
    changes = [
        (true_cell, stated_cell)
        for old_row, true_row, stated_row in zip_longest(read_grid(before), true_rows, stated_rows, fillvalue=())
        for old_cell, true_cell, stated_cell in zip_longest(old_row, true_row, stated_row)
        if true_cell != old_cell or stated_cell != old_cell
    ]
    exact = float(stated_rows == true_rows)
    return Perception(sum(starmap(eq, changes)) / len(changes) if changes else exact, exact)


def read_grid(text: str) -> list[list[str]]:
    """Parse a grid as `compare_grids` does: rows of lower-case words without brackets and quotes."""
    return [*_rows(text)]


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.translate(_BRACKETS).casefold().splitlines():
        if "," in line or "|" in line:
            yield [" ".join(cell.split()) for cell in _APART.split(line.strip().strip(",|"))]
        elif cells := line.split():
            yield cells
