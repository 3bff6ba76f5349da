"""Paths between tiles; the legal moves and the end of a game follow from them.

Paths are found on bitboards, ints whose bits represent cells, so one operation covers whole lines of cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from vlmgym.sandbox.core.coordinates import Pair
from vlmgym.sandbox.games.tiles import EMPTY

Board = tuple[tuple[str, ...], ...]
"""Names of the tiles, rows x columns, `EMPTY` for no tile."""

Cell = tuple[int, int]
"""Row and column from 0; the ring around the board has row -1 or `rows`, or column -1 or `columns`."""

Square = int
"""Bit index of a cell."""

Bitboard = int
"""Set of squares."""

Groups = list[list[Square]]
"""The squares of each kind of tile in reading order; kinds are sorted by name."""


@lru_cache(maxsize=64)
def path_finder(rows: int, columns: int, turns: int) -> PathFinder:
    """Return the shared `PathFinder` for a board size and number of turns."""
    return PathFinder(rows, columns, turns)


@lru_cache(maxsize=4096)
def tile_groups(board: Board) -> tuple[Bitboard, Groups]:
    """Return the squares with a tile, and the groups of equal tiles."""
    groups = path_finder(len(board), len(board[0]), 0).groups(board)
    return sum([1 << square for group in groups for square in group]), groups


@lru_cache(maxsize=4096)
def legal_actions(board: Board, turns: int) -> tuple[Pair, ...]:
    """List every pair of equal tiles connected by a path, in both orders, sorted."""
    finder = path_finder(len(board), len(board[0]), turns)
    pairs = [(finder.cell(first), finder.cell(second)) for first, second in finder.pairs(*tile_groups(board))]
    return tuple(sorted(pair for first, second in pairs for pair in (first + second, second + first)))


@lru_cache(maxsize=4096)
def end_reason(board: Board, turns: int) -> str | None:
    """Return `cleared`, `no pair can be connected`, or None."""
    tiles, groups = tile_groups(board)
    if not tiles:
        return "cleared"
    pair = next(path_finder(len(board), len(board[0]), turns).pairs(tiles, groups), None)
    return "no pair can be connected" if pair is None else None


class PathFinder:
    """Finder of paths with at most `turns` turns on boards of one size.

    The bits of a row are consecutive, ring included. An unused bit separates rows, so that shifts do not wrap around. A
    line from a square ends at the nearest tile on either side: the lowest tile bit above the bit of the square, and the
    highest tile bit below it.
    """

    def __init__(self, rows: int, columns: int, turns: int) -> None:
        self.rows, self.columns, self.turns = rows, columns, turns
        self._stride = columns + 3
        cells = [(row, column) for row in range(-1, rows + 1) for column in range(-1, columns + 1)]
        self.squares = tuple(tuple(self.square((row, column)) for column in range(columns)) for row in range(rows))
        """Square of each cell, rows x columns."""
        self._floor: Bitboard = sum(1 << self.square(cell) for cell in cells)
        self._rays = {self.square(cell): self._rays_of(cell) for cell in cells}
        steps = (-self._stride, -1, 1, self._stride)
        self.neighbours = {
            square: sum(1 << square + step for step in steps) for line in self.squares for square in line
        }

    def square(self, cell: Cell) -> Square:
        """Return the bit index of a cell."""
        return (cell[0] + 1) * self._stride + cell[1] + 1

    def cell(self, square: Square) -> Cell:
        """Return the row and column of a bit index."""
        return square // self._stride - 1, square % self._stride - 1

    def groups(self, board: Board) -> Groups:
        """Group the tiles of a board of this size."""
        groups: dict[str, list[Square]] = defaultdict(list)
        for line, squares in zip(board, self.squares):
            for tile, square in zip(line, squares):
                if tile != EMPTY:
                    groups[tile].append(square)
        return [groups[tile] for tile in sorted(groups)]

    def pairs(self, tiles: Bitboard, groups: Iterable[Sequence[Square]]) -> Iterator[tuple[Square, Square]]:
        """Yield pairs of squares in the same group connected by a path, in the order of groups and squares."""
        for group in groups:
            lines = [self._lines(square, tiles) for square in group]
            for first in range(len(group) - 1):
                near_h, near_v = lines[first]
                far_h, far_v = self._before_last_turn(near_h, near_v, tiles)
                beside = self.neighbours[group[first]]
                for second in range(first + 1, len(group)):
                    h, v = lines[second]
                    if far_h & v or far_v & h or near_h & h or near_v & v or beside >> group[second] & 1:
                        yield group[first], group[second]

    def partners(self, square: Square, tiles: Bitboard) -> Bitboard:
        """Return the squares of all tiles connected by a path to the tile on a square, whatever their kind."""
        near_h, near_v = self._lines(square, tiles)
        far_h, far_v = self._before_last_turn(near_h, near_v, tiles)
        h, v = near_h | far_v, near_v | far_h
        if self.turns:
            h, v = self._spread(h, tiles, 1), self._spread(v, tiles, self._stride)
        stride = self._stride
        return (h << 1 | h >> 1 | v << stride | v >> stride) & tiles & ~(1 << square)

    def path(self, start: Square, end: Square, tiles: Bitboard) -> list[Cell] | None:
        """Find a path with the fewest turns; return its first cell, corners and last cell, or None if none exists."""
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
                    return [self.cell(square) for square in (start, *reversed(back))]
            h, v = reached[-1]
            reached.append((self._spread(v, tiles, 1), self._spread(h, tiles, self._stride)))
        return None

    def _lines(self, square: Square, tiles: Bitboard) -> tuple[Bitboard, Bitboard]:
        """Return the horizontal and vertical lines of empty cells around a square, including the square."""
        right, left, down, up = self._rays[square]
        own = 1 << square
        to_right, to_left, below, above = right & tiles, left & tiles, down & tiles, up & tiles
        # On a ray without tiles, the lowest bit and the bit length are 0, which keeps the whole ray.
        before_left, before_above = to_left.bit_length(), above.bit_length()
        return (
            own | right & ((to_right & -to_right) - 1) | left >> before_left << before_left,
            own | down & ((below & -below) - 1) | up >> before_above << before_above,
        )

    def _before_last_turn(self, h: Bitboard, v: Bitboard, tiles: Bitboard) -> tuple[Bitboard, Bitboard]:
        """Return the squares that can be reached before the last turn, horizontally and vertically.

        `h` and `v` are the lines of a square. The last turn connects the squares returned with a perpendicular line of
        the other square. Both sets are empty if no turn is allowed, or if tiles enclose the square, so that `h == v`.
        """
        if not self.turns or h == v:
            return 0, 0
        for _ in range(self.turns - 1):
            h, v = self._spread(v, tiles, 1), self._spread(h, tiles, self._stride)
        return h, v

    def _spread(self, squares: Bitboard, tiles: Bitboard, stride: int) -> Bitboard:
        """Extend squares along one axis over empty cells, up to the next tile on either side."""
        empty = self._floor & ~tiles & ~squares
        new = squares
        while new:
            new = (new << stride | new >> stride) & empty
            empty ^= new
            squares |= new
        return squares

    def _nearest(self, square: Square, squares: Bitboard) -> Square:
        """Return the square nearest to `square` among `squares`, all of which are in line with it."""
        later, earlier = squares >> square << square, squares & (1 << square) - 1
        after, before = (later & -later).bit_length() - 1, earlier.bit_length() - 1
        if not later or not earlier:
            return after if later else before
        return after if after - square <= square - before else before

    def _rays_of(self, cell: Cell) -> tuple[Bitboard, Bitboard, Bitboard, Bitboard]:
        """Return all squares to the right, to the left, below and above a cell, including the ring."""
        row, column = cell
        return (
            sum(1 << self.square((row, c)) for c in range(column + 1, self.columns + 1)),
            sum(1 << self.square((row, c)) for c in range(-1, column)),
            sum(1 << self.square((r, column)) for r in range(row + 1, self.rows + 1)),
            sum(1 << self.square((r, column)) for r in range(-1, row)),
        )
