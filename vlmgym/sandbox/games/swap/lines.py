"""The search for legal swaps, line by line, that explanations of Swap demonstrate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from vlmgym.sandbox.answers.cells import Pair
from vlmgym.sandbox.games.swap.boards import RUN, SwapRules, Tiles

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
