"""Boards of Swap: runs, swaps, falling tiles, cascades, the oracle, and the search that explanations demonstrate.

A board is a flat list of tiles in row-major order: cell = row * columns + column. A tile is any int; equal ints are
equal tiles. Lists with precomputed tables beat NumPy on 8 x 8, where the overhead of NumPy calls exceeds the work, and
are hardly slower on 16 x 16.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count, groupby, pairwise
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from vlmgym.sandbox.answers.cells import Pair
from vlmgym.sandbox.answers.choice import neighbours

RUN = 3
"""Number of equal tiles in a line that make a run."""

Tiles = list[int]
Line = tuple[int, ...]
"""Cells of a row or column, in order."""
Window = tuple[int, int, int]
"""Three consecutive cells of a row or column; a run if their tiles are equal."""


class Cascade(NamedTuple):
    """Result of a cascade.

    Attributes:
        points: Sum over all runs of their length minus 2, times the round in which they vanish, from 1.
        cleared: Number of tiles cleared.
        rounds: Number of rounds.
        settled: False if runs are left on the board.
    """

    points: int
    cleared: int
    rounds: int
    settled: bool


class SwapRules:
    """The rules for boards of one size, with precomputed tables."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self._near = [[other for _, other in near] for near in neighbours(rows, columns)]
        adjacent = ((*divmod(a, columns), *divmod(b, columns)) for a, near in enumerate(self._near) for b in near)
        self.actions: tuple[Pair, ...] = tuple(sorted(adjacent))
        """All ordered pairs of adjacent cells; swaps are identified by their index in this tuple."""
        self._lines = tuple(
            [tuple(range(row * columns, (row + 1) * columns)) for row in range(rows)]
            + [tuple(range(column, rows * columns, columns)) for column in range(columns)]
        )
        self._windows: tuple[Window, ...] = tuple(
            window for line in self._lines for window in zip(line, line[1:], line[2:])
        )
        self._windows_at, self._windows_down_to = self._windows_by_cell()
        self._completions = self._completions_by_pair()

    def completes_run(self, tiles: Tiles, cell: int) -> bool:
        """True if a cell is part of a run."""
        return any(tiles[a] == tiles[b] == tiles[c] for a, b, c in self._windows_at[cell])

    def runs(self, tiles: Tiles) -> list[tuple[int, ...]]:
        """List all maximal runs, rows first; a run is its cells from left to right or top to bottom."""
        runs = []
        for line in self._lines:
            for _, group in groupby(line, key=tiles.__getitem__):
                if len(cells := tuple(group)) >= RUN:
                    runs.append(cells)
        return runs

    def legal_swaps(self, tiles: Tiles) -> list[int]:
        """List the indices into `actions` of the legal swaps on a board without runs, in ascending order."""
        return sorted({index for both_orders in self._swaps(tiles) for index in both_orders})

    def has_swap(self, tiles: Tiles) -> bool:
        """True if a board without runs has a legal swap."""
        return next(self._swaps(tiles), None) is not None

    def _swaps(self, tiles: Tiles) -> Iterator[tuple[int, int]]:
        """Yield the indices of each legal swap in both orders; some swaps are yielded more than once."""
        for a, b, completions in self._completions:
            tile = tiles[a]
            if tile == tiles[b]:
                for source, both_orders in completions:
                    if tiles[source] == tile:
                        yield both_orders

    def lines(self, vertical: bool) -> tuple[Line, ...]:
        """Return the cells of each column if `vertical`, else of each row."""
        return self._lines[self.rows :] if vertical else self._lines[: self.rows]

    def cells(self, index: int) -> tuple[int, int]:
        """Return the two cells of `actions[index]`."""
        row1, column1, row2, column2 = self.actions[index]
        return row1 * self.columns + column1, row2 * self.columns + column2

    def pair(self, first: int, second: int) -> Pair:
        """Return the swap of two cells."""
        return (*divmod(first, self.columns), *divmod(second, self.columns))

    def swap(self, tiles: Tiles, index: int) -> Tiles:
        """Return a copy of the board with the two tiles of `actions[index]` swapped."""
        a, b = self.cells(index)
        swapped = tiles.copy()
        swapped[a], swapped[b] = tiles[b], tiles[a]
        return swapped

    def fall(self, tiles: Tiles, vanished: set[int], new: Tiles) -> None:
        """Let tiles fall into vanished cells and refill the board from the top, in place.

        `new` has a tile for each vanished cell: columns from the left and, within a column, cells from the top.
        """
        start = 0
        for column in sorted({cell % self.columns for cell in vanished}):
            cells = self._lines[self.rows + column]
            kept = [tiles[cell] for cell in cells if cell not in vanished]
            end = start + self.rows - len(kept)
            tiles[column :: self.columns] = new[start:end] + kept
            start = end

    def cascade(self, tiles: Tiles, changed: Iterable[int], new: Callable[[int], Tiles], max_rounds: int) -> Cascade:
        """Clear runs and let tiles fall, in place, until no runs are left or `max_rounds` is reached.

        `changed` are the cells that changed since the board had no runs, so every run includes one of them.
        `new(n)` generates n new tiles.
        """
        points = cleared = rounds = 0
        windows = [window for cell in changed for window in self._windows_at[cell]]
        while matches := {(a, b, c) for a, b, c in windows if tiles[a] == tiles[b] == tiles[c]}:
            if rounds == max_rounds:
                return Cascade(points, cleared, rounds, False)
            vanished = {*chain.from_iterable(matches)}
            self.fall(tiles, vanished, new(len(vanished)))
            lowest = {cell % self.columns: cell for cell in sorted(vanished)}
            windows = [window for cell in lowest.values() for window in self._windows_down_to[cell]]
            cleared += len(vanished)
            rounds += 1
            points += rounds * len(matches)  # a run of n tiles has n - 2 windows
        return Cascade(points, cleared, rounds, True)

    def arrange(self, bag: Tiles) -> Tiles | None:
        """Arrange a bag of tiles into a board without runs, greedily in reading order; None if no tile fits a cell."""
        bag, columns = bag[::-1], self.columns
        tiles: Tiles = []
        for cell in range(self.rows * columns):
            left = tiles[-1] if cell % columns >= RUN - 1 and tiles[-1] == tiles[-2] else None
            above = tiles[-columns] if cell >= 2 * columns and tiles[-columns] == tiles[-2 * columns] else None
            for i in range(len(bag) - 1, -1, -1):
                if bag[i] != left and bag[i] != above:
                    tiles.append(bag.pop(i))
                    break
            else:
                return None
        return tiles

    def _windows_by_cell(self) -> tuple[tuple[tuple[Window, ...], ...], tuple[tuple[Window, ...], ...]]:
        """Return, for each cell, the windows that contain it, and those that contain it or a cell above it."""
        cells = range(self.rows * self.columns)
        at = tuple(tuple(window for window in self._windows if cell in window) for cell in cells)
        column = [range(cell, -1, -self.columns) for cell in cells]
        down_to = tuple(tuple({window: None for above in column[cell] for window in at[above]}) for cell in cells)
        return at, down_to

    def _completions_by_pair(self) -> tuple[tuple[int, int, tuple[tuple[int, tuple[int, int]], ...]], ...]:
        """Return pairs of cells that a third equal tile would turn into a run, with the swaps that can bring it in.

        An entry has both cells of a pair and, for each swap, the cell that the tile comes from and the indices of the
        swap in both orders. This covers every legal swap: the two swapped tiles differ, so a new run contains only one
        of them.
        """
        index = {self.cells(i): i for i in range(len(self.actions))}
        completions: dict[tuple[int, int], list[tuple[int, tuple[int, int]]]] = defaultdict(list)
        for cell, windows in enumerate(self._windows_at):
            for a, b, c in windows:
                pair = a if a != cell else b, c if c != cell else b
                sources = [source for source in self._near[cell] if source not in pair]
                completions[pair] += [(source, (index[cell, source], index[source, cell])) for source in sources]
        return tuple((a, b, tuple(entries)) for (a, b), entries in completions.items())


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# One-move lookahead for Swap: the swap with the highest expected score.
#
# Swaps are first ranked by their score if new tiles match no other tile, which needs no sampling. For the best of them,
# cascades with random new tiles are then sampled. The generator is seeded with the board, so a given board always gets
# the same swap.
#
# On one core of a small server, a move takes about 2 ms on 8 x 8 with 12 kinds, 6 ms on 5 x 5 with 4 kinds, and 0.2 s
# in the slowest case, 16 x 16 with 3 kinds.

CANDIDATES = 12
"""Number of swaps whose cascades are sampled."""
SAMPLES = 24
"""Number of cascades to sample per candidate."""
ROUNDS = 6
"""Maximum number of rounds per cascade."""


def best_swap(rules: SwapRules, tiles: Tiles, kinds: int) -> int | None:
    """Return the index of the best swap on a board without runs, or None if no swap is legal.

    Tiles are 0 to kinds - 1, and at most 255.
    """
    # Keep one of the two orders of each swap.
    swaps = [index for index in rules.legal_swaps(tiles) if rules.actions[index][:2] < rules.actions[index][2:]]
    if len(swaps) < 2:
        return swaps[0] if swaps else None
    certain = {index: certain_points(rules, tiles, index) for index in swaps}
    candidates = sorted(swaps, key=lambda index: -certain[index])[:CANDIDATES]
    rng = np.random.default_rng(crc32(bytes(tiles)))

    def new(number: int) -> Any:
        return rng.integers(kinds, size=number).tolist()

    expected = {index: sum(_points(rules, tiles, index, new) for _ in range(SAMPLES)) for index in candidates}
    return max(candidates, key=expected.__getitem__)


def certain_points(rules: SwapRules, tiles: Tiles, index: int) -> int:
    """Return the score of a swap if new tiles match no other tile."""
    return _points(rules, tiles, index, blank_tiles())


def blank_tiles() -> Callable[[int], Tiles]:
    """Return a source of new tiles that match no other tile: -1, -2 and so on."""
    blanks = count(-1, -1)
    return lambda number: [next(blanks) for _ in range(number)]


def _points(rules: SwapRules, tiles: Tiles, index: int, new: Callable[[int], Tiles]) -> int:
    return rules.cascade(rules.swap(tiles, index), rules.cells(index), new, ROUNDS).points


# Search line by line --------------------------------------------------------------------------------------------------
#
# The search for legal swaps that explanations of Swap demonstrate.

Entry = tuple[tuple[int, ...], Pair | None]
"""Tiles, and the swap that is legal if one of them is in the entry before."""


class SearchedLine(NamedTuple):
    """A row or column of the search.

    Attributes:
        vertical: True for a column.
        number: Index of the row or column.
        cells: Cells of the line.
        shown: Tiles of the line.
        needed: For each index in the line, the tiles that would complete a run there.
        entries: Comparisons: for each index, the tile and those needed at this index in the line before; then for each
            index, the tile of the line before, those needed in this line and, if this is not at an end of the line, the
            neighbour that a swap along the line would bring here.
    """

    vertical: bool
    number: int
    cells: Sequence[int]
    shown: Sequence[int]
    needed: Sequence[tuple[int, ...]]
    entries: Sequence[Entry]

    @property
    def legal(self) -> Iterator[tuple[int, Pair]]:
        """Indices of the entries that show a swap to be legal, and these swaps."""
        for number, ((before, _), (tiles, swap)) in enumerate(pairwise(self.entries), 1):
            if swap is not None and not set(before).isdisjoint(tiles):
                yield number, swap


def search_lines(rules: SwapRules, tiles: Tiles) -> Iterator[SearchedLine]:
    """Compare the tiles of each row, and of each column, with those of the line before; this finds all legal swaps.

    The search may start at any line, and returns to the lines before it. A checksum of the board chooses the start, so
    that demonstrations show each line equally often; the search succeeds from every start.
    """
    lines = [(vertical, number) for vertical in (False, True) for number in range(len(rules.lines(vertical)))]
    start = crc32(bytes(tiles)) % len(lines)
    line: SearchedLine | None = None
    for vertical, number in [*lines[start:], *lines[:start], lines[start]]:
        line = search_line(rules, tiles, vertical, number, line)
        yield line


def search_line(rules: SwapRules, tiles: Tiles, vertical: bool, number: int, last: SearchedLine | None) -> SearchedLine:
    """Compare the tiles of a line with those of the line searched last, if it is next to this one."""
    follows = last is not None and (last.vertical, last.number + 1) == (vertical, number)
    before, cells = last if follows else None, rules.lines(vertical)[number]
    shown = [tiles[cell] for cell in cells]
    needed, beside = _needed(shown), _beside(shown)
    entries: list[Entry] = []
    across = [None] * len(cells) if before is None else [*map(rules.pair, before.cells, cells)]
    for place, tile in enumerate(shown):
        entries += [((tile,), None), (() if before is None else before.needed[place], across[place])]
    for place, side in enumerate(beside):
        entries += [(() if before is None else (before.shown[place],), None), (needed[place], across[place])]
        if side is not None:
            entries.append(((shown[side],), rules.pair(*sorted((cells[place], cells[side])))))
        elif 0 < place < len(cells) - 1 and len(cells) > RUN:
            entries.append(((), None))
    return SearchedLine(vertical, number, cells, shown, needed, entries)


def _needed(line: Sequence[int]) -> list[tuple[int, ...]]:
    """Return, for each index in a line, the tiles that would complete a run there: none, one or two."""
    tiles = []
    for place in range(len(line)):
        pairs = ((place - 2, place - 1), (place - 1, place + 1), (place + 1, place + 2))
        equal = (line[a] for a, b in pairs if a >= 0 and b < len(line) and line[a] == line[b])
        tiles.append(tuple(dict.fromkeys(equal)))
    return tiles


def _beside(line: Sequence[int]) -> list[int | None]:
    """Return, for each index in a line, the neighbour that a swap along the line can bring to two equal tiles.

    The two tiles are next to each other, on the other side of the index. None means that there are no such tiles, or
    two different pairs; then no swap along the line completes a run.
    """
    neighbours: list[int | None] = []
    for place in range(len(line)):
        sides = {}
        for side, near, far in ((place + 1, place - 1, place - 2), (place - 1, place + 1, place + 2)):
            if min(side, far) >= 0 and max(side, far) < len(line) and line[near] == line[far]:
                sides[line[side]] = side
        neighbours.append(sides.popitem()[1] if len(sides) == 1 else None)
    return neighbours
