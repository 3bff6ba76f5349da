"""Paths of few turns between tiles, through empty cells and through one ring of cells around the board.

Boards are sets of places held as the bits of an int, so that whole lines of cells are looked at in one operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

Cell = tuple[int, int]
"""Row and column from 0; the ring has row -1 or `rows`, or column -1 or `columns`."""

Place = int
"""Number of the bit that stands for a cell."""

Places = int
"""A set of places."""


@lru_cache(maxsize=64)
def paths(rows: int, columns: int, turns: int) -> Paths:
    """The shared `Paths` of a size and a number of turns."""
    return Paths(rows, columns, turns)


class Paths:
    """Finds paths of at most `turns` turns on boards of one size.

    The bits of a row follow each other, ring included, and one bit between rows belongs to no cell, so that a shifted
    set does not run over into the next row. A line from a place ends at the nearest tile on either side: the lowest
    tile bit of the places that come later, and the highest of those that come earlier.
    """

    def __init__(self, rows: int, columns: int, turns: int) -> None:
        self.rows, self.columns, self.turns = rows, columns, turns
        self._stride = columns + 3
        cells = [(row, column) for row in range(-1, rows + 1) for column in range(-1, columns + 1)]
        self.places = tuple(tuple(self.place((row, column)) for column in range(columns)) for row in range(rows))
        """The place of each cell, rows x columns."""
        self._floor: Places = sum(1 << self.place(cell) for cell in cells)
        self._rays = {self.place(cell): self._rays_of(cell) for cell in cells}
        self.neighbours = {
            self.place((row, column)): sum(
                1 << self.place(cell)
                for cell in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
            )
            for row in range(rows)
            for column in range(columns)
        }

    def place(self, cell: Cell) -> Place:
        """The place of a cell."""
        return (cell[0] + 1) * self._stride + cell[1] + 1

    def cell(self, place: Place) -> Cell:
        """The cell of a place."""
        return place // self._stride - 1, place % self._stride - 1

    def groups(self, board: Sequence[Sequence[str]], empty: str) -> list[list[Place]]:
        """The places of equal tiles on a board of this size, in reading order, by the names of the tiles."""
        groups: dict[str, list[Place]] = {}
        for line, places in zip(board, self.places):
            for tile, place in zip(line, places):
                if tile == empty:
                    continue
                if tile in groups:
                    groups[tile].append(place)
                else:
                    groups[tile] = [place]
        return [groups[tile] for tile in sorted(groups)]

    def pairs(self, tiles: Places, groups: Iterable[Sequence[Place]]) -> Iterator[tuple[Place, Place]]:
        """Every two tiles of the same group that a path joins, in the order of the groups and within them.

        Args:
            tiles: All places that hold a tile.
            groups: Places of equal tiles, all of them in `tiles`.
        """
        for group in groups:
            lines = [self._lines(place, tiles) for place in group]
            for first in range(len(group) - 1):
                near_h, near_v = lines[first]
                far_h, far_v = self._before_last_turn(near_h, near_v, tiles)
                beside = self.neighbours[group[first]]
                for second in range(first + 1, len(group)):
                    h, v = lines[second]
                    if far_h & v or far_v & h or near_h & h or near_v & v or beside >> group[second] & 1:
                        yield group[first], group[second]

    def partners(self, place: Place, tiles: Places) -> Places:
        """All tiles that a path joins with the tile at a place."""
        near_h, near_v = self._lines(place, tiles)
        far_h, far_v = self._before_last_turn(near_h, near_v, tiles)
        h, v = near_h | far_v, near_v | far_h
        if self.turns:
            h, v = self._spread(h, tiles, 1), self._spread(v, tiles, self._stride)
        stride = self._stride
        return (h << 1 | h >> 1 | v << stride | v >> stride) & tiles & ~(1 << place)

    def path(self, start: Place, end: Place, tiles: Places) -> list[Cell] | None:
        """A path with the fewest turns between two tiles: its first cell, its corners and its last cell; or None."""
        reached = [self._lines(start, tiles)]
        lines = self._lines(end, tiles)
        if self.neighbours[start] >> end & 1 or any(a & b for a, b in zip(reached[0], lines)):
            return [self.cell(start), self.cell(end)]
        for turns in range(1, self.turns + 1):
            for axis in (0, 1):
                if corners := reached[-1][1 - axis] & lines[axis]:
                    back = [end, self._nearest(end, corners)]
                    for level in range(turns - 2, -1, -1):
                        axis = 1 - axis
                        corners = reached[level][1 - axis] & self._lines(back[-1], tiles)[axis]
                        back.append(self._nearest(back[-1], corners))
                    return [self.cell(place) for place in (start, *reversed(back))]
            h, v = reached[-1]
            reached.append((self._spread(v, tiles, 1), self._spread(h, tiles, self._stride)))
        return None

    def _lines(self, place: Place, tiles: Places) -> tuple[Places, Places]:
        """A place and what is empty to its left and right without gaps; and the same above and below."""
        right, left, down, up = self._rays[place]
        own = 1 << place
        to_right, to_left, below, above = right & tiles, left & tiles, down & tiles, up & tiles
        # Without a tile on the ray, the lowest bit is 0 and the bit length 0, and the whole ray stays.
        before_left, before_above = to_left.bit_length(), above.bit_length()
        return (
            own | right & ((to_right & -to_right) - 1) | left >> before_left << before_left,
            own | down & ((below & -below) - 1) | up >> before_above << before_above,
        )

    def _before_last_turn(self, h: Places, v: Places, tiles: Places) -> tuple[Places, Places]:
        """What is reached from a place's lines with one turn less than allowed, going across and going down at last.

        A last turn then joins one with a line, across the other way, of the other end. Both are empty if no turn is
        allowed, or if the place is shut in: only then its lines, which hold nothing but itself, are equal.
        """
        if not self.turns or h == v:
            return 0, 0
        for _ in range(self.turns - 1):
            h, v = self._spread(v, tiles, 1), self._spread(h, tiles, self._stride)
        return h, v

    def _spread(self, places: Places, tiles: Places, stride: int) -> Places:
        """Places and all that is empty in line with them, without gaps, along one axis."""
        empty = self._floor & ~tiles & ~places
        new = places
        while new:
            new = (new << stride | new >> stride) & empty
            empty ^= new
            places |= new
        return places

    def _nearest(self, place: Place, places: Places) -> Place:
        """The place of a set, all in one line with a place, that is nearest to it."""
        later, earlier = places >> place << place, places & (1 << place) - 1
        after, before = (later & -later).bit_length() - 1, earlier.bit_length() - 1
        if not later or not earlier:
            return after if later else before
        return after if after - place <= place - before else before

    def _rays_of(self, cell: Cell) -> tuple[Places, Places, Places, Places]:
        """All places to the right of, to the left of, below and above a cell, with the ring."""
        row, column = cell
        return (
            sum(1 << self.place((row, c)) for c in range(column + 1, self.columns + 1)),
            sum(1 << self.place((row, c)) for c in range(-1, column)),
            sum(1 << self.place((r, column)) for r in range(row + 1, self.rows + 1)),
            sum(1 << self.place((r, column)) for r in range(-1, row)),
        )
