"""Pieces of falling blocks, and the placement that the oracle chooses.

A shape is a sorted tuple of cells (row, column). Rows count from the top; the smallest row and column are 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

Shape = tuple[tuple[int, int], ...]
Well = tuple[str, ...]
FREE = "."
LINES, HEIGHT, HOLES, BUMPS = 0.76, -0.51, -0.36, -0.18
"""Weights of the oracle, from "Tetris AI - The (Near) Perfect Bot" by Yiyuan Lee (2013): number of rows cleared, sum of
column heights, number of free cells below blocks, and sum of height differences between adjacent columns."""


class Landing(NamedTuple):
    """Result of dropping a piece: the well after full rows have vanished, and the number of rows that vanished."""

    well: Well
    cleared: int


@cache
def pieces(cells: int) -> tuple[Shape, ...]:
    """Return all shapes of `cells` connected cells, each in one orientation only; see `_flat`."""
    grown: set[Shape] = {((0, 0),)}
    for _ in range(cells - 1):
        larger = {
            _moved((*shape, (row + down, column + right)))
            for shape in grown
            for row, column in shape
            for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))
            if (row + down, column + right) not in shape
        }
        grown = {min(rotation(shape, turns) for turns in range(4)) for shape in larger}
    return tuple(sorted(map(_flat, grown)))


@cache
def rotation(shape: Shape, turns: int) -> Shape:
    """Rotate a shape clockwise by a number of quarter turns."""
    for _ in range(turns):
        shape = tuple((column, -row) for row, column in shape)
    return _moved(shape)


def _moved(shape: Shape) -> Shape:
    top, left = min(row for row, _ in shape), min(column for _, column in shape)
    return tuple(sorted((row - top, column - left) for row, column in shape))


def _flat(shape: Shape) -> Shape:
    """Rotate a shape to its smallest height; on a tie, to the lowest centre of mass."""
    return min(
        (rotation(shape, turns) for turns in range(4)),
        key=lambda turned: (height_of(turned), -sum(row for row, _ in turned), turned),
    )


def height_of(shape: Shape) -> int:
    """Number of rows of a shape."""
    return 1 + max(row for row, _ in shape)


def width_of(shape: Shape) -> int:
    """Number of columns of a shape."""
    return 1 + max(column for _, column in shape)


def heights_of(well: Well) -> list[int]:
    """Height of the stack in each column."""
    return [len(column.lstrip(FREE)) for column in map("".join, zip(*well))]


def resting_row(well: Well, heights: Sequence[int], shape: Shape, column: int) -> int:
    """Row where a shape's top lands if dropped with its left edge in `column`; negative if the shape does not fit."""
    return min(len(well) - heights[column + right] - 1 - down for down, right in shape)


def land(well: Well, shape: Shape, column: int, mark: str) -> Landing | None:
    """Drop a shape into the well; return None if it does not fit."""
    top = resting_row(well, heights_of(well), shape, column)
    if top < 0:
        return None
    rows = list(map(list, well))
    for down, right in shape:
        rows[top + down][column + right] = mark
    left = ["".join(row) for row in rows if FREE in row]
    cleared = len(rows) - len(left)
    return Landing((FREE * len(well[0]),) * cleared + tuple(left), cleared)


def placements(well: Well, shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield each (column, quarter turns) at which a shape fits into the well."""
    heights, width = heights_of(well), len(well[0])
    turned = [rotation(shape, turns) for turns in range(4)]
    for column in range(width):
        for turns, each in enumerate(turned):
            if column + width_of(each) <= width and resting_row(well, heights, each, column) >= 0:
                yield column, turns


def best_placement(well: Well, shape: Shape) -> tuple[int, int] | None:
    """Return the placement with the highest value, or None if the shape does not fit."""

    def value(placement: tuple[int, int]) -> float:
        column, turns = placement
        landing = land(well, rotation(shape, turns), column, "#")
        assert landing is not None
        heights = heights_of(landing.well)
        free = sum(row.count(FREE) for row in landing.well)
        holes = sum(heights) - (len(well) * len(well[0]) - free)
        bumps = sum(abs(one - other) for one, other in pairwise(heights))
        return LINES * landing.cleared + HEIGHT * sum(heights) + HOLES * holes + BUMPS * bumps

    return max(placements(well, shape), key=value, default=None)
