"""Solver for sliding-tile puzzles: iterative-deepening A* with Manhattan distance and linear conflicts.

`Search` returns the first shortest solution in the order of moves, so a search from a later board of this solution
returns the rest of it. Cells are numbered row by row.
"""

from __future__ import annotations

from functools import lru_cache

from vlmgym.sandbox.core.named_actions import neighbours

Tiles = tuple[int, ...]
"""Tile in each cell; 0 for the gap."""

MOST_NODES = 40_000
"""Maximum number of nodes, reached within seconds; boards at level 5 need 3,000 on average."""


@lru_cache
def gap_moves(rows: int, columns: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the legal actions for each position of the gap, each with the cell of the tile that moves."""
    return tuple(tuple(sorted((side ^ 2, cell) for side, cell in near)) for near in neighbours(rows, columns))


@lru_cache
def _line_cost(line: Tiles, goal: Tiles) -> int:
    """Return the extra moves for tiles that block each other in their goal line: two per tile that must leave it."""
    places = [goal.index(tile) for tile in line if tile and tile in goal]
    longest: list[int] = []
    for i, place in enumerate(places):
        longest.append(1 + max((longest[j] for j in range(i) if places[j] < place), default=0))
    return 2 * (len(places) - max(longest, default=0))


def goal_of(rows: int, columns: int) -> Tiles:
    """Solved board: tiles in reading order, the gap last."""
    return (*range(1, rows * columns), 0)


def distance(tiles: Tiles, columns: int) -> int:
    """Sum of the Manhattan distances of the tiles from their goals."""
    total = 0
    for cell, tile in enumerate(tiles):
        if tile:
            row, column = divmod(tile - 1, columns)
            total += abs(cell // columns - row) + abs(cell % columns - column)
    return total


class Search:
    """A search for a shortest solution to one board."""

    def __init__(self, tiles: Tiles, rows: int, columns: int) -> None:
        self._rows, self._columns = rows, columns
        self._moves = gap_moves(rows, columns)
        goal = goal_of(rows, columns)
        self._goal_rows = [goal[row * columns : (row + 1) * columns] for row in range(rows)]
        self._goal_columns = [goal[column::columns] for column in range(columns)]
        self._tiles = list(tiles)
        self.nodes = 0

    def solve(self) -> list[int] | None:
        """Return a shortest solution as actions, or None if the search exceeds `MOST_NODES`."""
        manhattan = distance(tuple(self._tiles), self._columns)
        bound = manhattan + self._conflicts()
        gap = self._tiles.index(0)
        while self.nodes <= MOST_NODES:
            path: list[int] = []
            found = self._extend(gap, manhattan, bound, -1, path)
            if found == 0:
                return path
            bound += found
        return None

    def _extend(self, gap: int, manhattan: int, left: int, last: int, path: list[int]) -> int:
        """Search `left` moves ahead; if solved, fill `path` and return 0, else return how much the bound must grow."""
        self.nodes += 1
        if manhattan == 0:
            return 0
        over = 1 << 30
        if self.nodes > MOST_NODES:
            return over
        tiles, columns = self._tiles, self._columns
        for action, source in self._moves[gap]:
            if action ^ 2 == last:
                continue
            tile = tiles[source]
            row, column = divmod(tile - 1, columns)
            after = (
                manhattan
                + abs(gap // columns - row)
                + abs(gap % columns - column)
                - abs(source // columns - row)
                - abs(source % columns - column)
            )
            lacking = after - left + 1
            if lacking <= 0:
                tiles[gap], tiles[source] = tile, 0
                lacking = max(0, after + self._conflicts() - left + 1)
                if lacking == 0:
                    path.append(action)
                    lacking = self._extend(source, after, left - 1, action, path)
                    if lacking == 0:
                        return 0
                    path.pop()
                tiles[gap], tiles[source] = 0, tile
            over = min(over, lacking)
        return over

    def _conflicts(self) -> int:
        tiles, columns = self._tiles, self._columns
        rows = (
            _line_cost(tuple(tiles[row * columns : (row + 1) * columns]), goal)
            for row, goal in enumerate(self._goal_rows)
        )
        return sum(rows) + sum(
            _line_cost(tuple(tiles[column::columns]), goal) for column, goal in enumerate(self._goal_columns)
        )
