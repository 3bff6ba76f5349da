"""Boards of Shisen-Sho: paths between tiles, legal moves, dealing and the oracle.

Paths are found on bitboards, ints whose bits represent cells, so one operation covers whole lines of cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, combinations, cycle
from zlib import crc32

import numpy as np

from vlmgym.sandbox.answers.cells import Pair
from vlmgym.sandbox.core.board_game import with_cell
from vlmgym.sandbox.core.game import pick, retry
from vlmgym.sandbox.drawing.shapes import EMPTY

Board = tuple[tuple[str, ...], ...]
"""Names of the tiles, rows x columns, `EMPTY` for no tile."""

Cell = tuple[int, int]
"""Row and column from 0; the ring around the board has row -1 or `rows`, or column -1 or `columns`."""

Square = int
"""Bit index of a cell."""

SquarePair = tuple[Square, Square]

Bitboard = int
"""Set of squares."""

Link = tuple[Bitboard, Sequence[Bitboard]]
"""Two squares with equal tiles, and for each path between them the squares that must be empty."""

Groups = list[list[Square]]
"""The squares of each kind of tile in reading order; kinds are sorted by name."""


def squares_of(pair: Bitboard) -> SquarePair:
    """Return the two squares in a bitboard."""
    return (pair & -pair).bit_length() - 1, pair.bit_length() - 1


@lru_cache(maxsize=64)
def path_finder(rows: int, columns: int, turns: int) -> PathFinder:
    """Return the shared `PathFinder` for a board size and number of turns."""
    return PathFinder(rows, columns, turns)


@lru_cache(maxsize=4096)
def tile_groups(board: Board) -> tuple[Bitboard, Groups]:
    """Return the squares with a tile, and the groups of equal tiles."""
    groups = path_finder(len(board), len(board[0]), 0).groups(board)
    return sum([1 << square for group in groups for square in group]), groups


def equal_pairs(board: Board) -> list[SquarePair]:
    """List all pairs of equal tiles, kind by kind, from any pair on and back to it.

    A checksum of the board chooses the first pair, so that demonstrations show each equally often; the search succeeds
    from every start.
    """
    pairs = [pair for group in tile_groups(board)[1] for pair in combinations(group, 2)]
    start = crc32(repr(board).encode()) % max(1, len(pairs))
    return pairs[start:] + pairs[:start]


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
        self._column: Bitboard = sum(1 << self._stride * row for row in range(rows + 2))
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

    def link(self, first: Square, second: Square) -> Link:
        """Return two squares and all paths between them, or no path if paths may have more than two turns."""
        (top, left), (bottom, right) = self.cell(first), self.cell(second)
        corners = []
        if left != right:
            for row in range(-1, self.rows + 1):
                corners.append(((row, left), (row, right), (row != top) + (row != bottom)))
        if top != bottom:
            for column in range(-1, self.columns + 1):
                corners.append(((top, column), (bottom, column), (column != left) + (column != right)))
        pair = 1 << first | 1 << second
        routes = set()
        for one, other, turns in corners:
            if turns <= self.turns <= 2:
                near, far = self.square(one), self.square(other)
                route = self._segment(first, near) | self._segment(near, far) | self._segment(far, second)
                routes.add(route & ~pair)
        return pair, sorted(routes, key=int.bit_count)

    def connects(self, link: Link, tiles: Bitboard) -> bool:
        """Return True if a path connects the two tiles of a link."""
        for route in link[1]:
            if not tiles & route:
                return True
        return self.turns > 2 and self.path(*squares_of(link[0]), tiles) is not None

    def _segment(self, start: Square, end: Square) -> Bitboard:
        """Return the squares from one square to another in the same row or column, including both."""
        low, high = min(start, end), max(start, end)
        squares = (2 << high) - (1 << low)
        return squares if high - low < self._stride else squares & self._column << low

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
        square_bit = 1 << square
        to_right, to_left, below, above = right & tiles, left & tiles, down & tiles, up & tiles
        # On a ray without tiles, the lowest bit and the bit length are 0, which keeps the whole ray.
        before_left, before_above = to_left.bit_length(), above.bit_length()
        return (
            square_bit | right & ((to_right & -to_right) - 1) | left >> before_left << before_left,
            square_bit | down & ((below & -below) - 1) | up >> before_above << before_above,
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


# Dealing --------------------------------------------------------------------------------------------------------------
#
# Deal boards, at random or solvable by construction.

MAX_DEALS = 1000
"""Maximum number of attempts to deal a board that meets the constraints."""


def deal(finder: PathFinder, tiles: Sequence[str], solvable: bool, rng: np.random.Generator) -> Board:
    """Deal a full board with at least one legal move; if `solvable`, one that can be cleared.

    `tiles` lists the tile names; `tiles[2 * n]` and `tiles[2 * n + 1]` are equal for each n.
    """
    deal_once = _deal_solvable if solvable else _deal_random
    wanted = "that can be cleared" if solvable else "with a connected pair"
    what = f"{finder.rows} x {finder.columns} board {wanted} with turns={finder.turns}"
    return retry(lambda: deal_once(finder, tiles, rng), MAX_DEALS, what)


def _deal_solvable(finder: PathFinder, tiles: Sequence[str], rng: np.random.Generator) -> Board | None:
    """Deal a board that can be cleared in the order of `removal_order`; None at a dead end."""
    pairs = removal_order(finder, rng)
    if pairs is None:
        return None
    tile_at = {}
    for number, index in enumerate(rng.permutation(len(pairs))):
        tile_at.update(dict.fromkeys(pairs[index], tiles[2 * number]))
    return tuple(tuple([tile_at[square] for square in line]) for line in finder.squares)


def _deal_random(finder: PathFinder, tiles: Sequence[str], rng: np.random.Generator) -> Board | None:
    """Shuffle the tiles; None if no pair can be connected."""
    order = rng.permutation(len(tiles)).reshape(finder.rows, finder.columns)
    board = tuple(tuple(tiles[i] for i in line) for line in order)
    return board if end_reason(board, finder.turns) is None else None


def removal_order(finder: PathFinder, rng: np.random.Generator) -> list[tuple[Square, Square]] | None:
    """Draw pairs of squares that can be removed from a full board in the order drawn; None at a dead end.

    Adjacent squares are paired only if no others are connected, because adjacent equal tiles are trivial to find.
    """
    left = list(chain.from_iterable(finder.squares))
    tiles = sum(1 << square for square in left)
    pairs = []
    while left:
        order = [left[i] for i in rng.permutation(len(left)).tolist()]
        candidates = chain(
            ((square, finder.partners(square, tiles) & ~finder.neighbours[square]) for square in order),
            ((square, finder.partners(square, tiles)) for square in order),
        )
        first, partners = next((entry for entry in candidates if entry[1]), (0, 0))
        if not partners:
            return None
        seconds = [square for square in left if partners >> square & 1]
        second = pick(rng, seconds)
        pairs.append((first, second))
        tiles ^= 1 << first | 1 << second
        left.remove(first)
        left.remove(second)
    return pairs


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# Solver for Shisen-Sho: safe moves first, then a depth-first search over the others.
#
# Removing tiles only opens paths, so removing the last tiles of a kind never hurts: the last two, or the last four in
# two moves. Such moves are safe and need no search. The search decides which two of four equal tiles to remove first,
# and plays all safe moves in between. It prunes visited states and, while it tries to clear the board, states where
# some tiles could not be removed even if each tile could be paired more than once.
#
# A pair that can be removed need never wait. So if a board cannot be cleared after a pair is removed, it cannot be
# cleared by any plan that removes this pair, now or later; the pair is dead, and the other states are searched without
# it. After each failure, more dead pairs are derived. Only parts of the search that cannot succeed are pruned, so the
# plan depends only on the order of moves, which depends only on the state: searching again from a later state of a plan
# that clears the board finds the rest of that plan.
#
# The solver clears all 500 boards tested for each of these settings. At level 5, about one board in 100 needs more than
# 100 ms. Boards with 2 copies need no search.
#
# | 500 boards, 4 copies | CPU ms per move | slowest move (ms) |
# |---|---|---|
# | 6 x 6, 2 turns (level 3) | 0.17 | 6 |
# | 8 x 8, 2 turns | 0.35 | 27 |
# | 8 x 8, 1 turn (level 4) | 0.23 | 90 |
# | 10 x 10, 1 turn (level 5) | 0.42 | 264 |
#
#     python -m benchmarks.oracles shisensho --episodes 500
#     python -m benchmarks.oracles shisensho --episodes 500 --reasoning 5
#     python -m benchmarks.oracles shisensho --episodes 500 --config rows=8 columns=8 turns=2
#     python -m benchmarks.oracles shisensho --episodes 500 --config rows=8 columns=8 turns=1

NODE_BUDGET = 10_000
"""Maximum number of nodes per search. A move takes two searches if the first cannot clear the board."""


def plan(board: Board, turns: int) -> list[tuple[Board, Pair]]:
    """Return the moves of `Solver.moves`, each with the board on which it is played.

    Only the first move if they do not clear the board, because a search from a later board may then find other moves.
    """
    steps = []
    for pair in Solver(board, turns).moves():
        steps.append((board, pair))
        board = with_cell(with_cell(board, pair[:2], (EMPTY,)), pair[2:], (EMPTY,))
    return steps if {*chain.from_iterable(board)} == {EMPTY} else steps[:1]


class Solver:
    """A search on one board. A state is the set of squares that still have a tile.

    Each search visits up to `budget` nodes. The first search tries to clear the board; if it fails, further searches
    remove as many tiles as possible. `nodes` counts the nodes so far; it stays 0 if all moves are safe.
    """

    def __init__(self, board: Board, turns: int, budget: int = NODE_BUDGET) -> None:
        self.nodes = 0
        self._finder = path_finder(len(board), len(board[0]), turns)
        self._tiles, groups = tile_groups(board)
        self._kinds = [[self._finder.link(*pair) for pair in combinations(group, 2)] for group in groups]
        self._budget = budget
        self._seen: set[Bitboard] = set()
        self._line: list[Bitboard] = []
        self._best_line: list[Bitboard] = []
        self._fewest = 0

    def moves(self) -> Iterator[Pair]:
        """Yield the moves of a plan, removing the tiles of each move from the board."""
        branches: list[Bitboard] = []
        while True:
            safe = (pairs[0] for kind in self._kinds if (pairs := self._safe_pairs(self._tiles, kind)))
            if (pair := next(safe, None)) is None:
                branches = branches or self._branches(self._tiles)
                if not branches:
                    return
                pair = branches.pop(0)
            self._tiles ^= pair
            first, second = squares_of(pair)
            yield self._finder.cell(first) + self._finder.cell(second)

    def _branches(self, tiles: Bitboard) -> list[Bitboard]:
        """Find the moves that leave the fewest tiles in a state without safe pairs; omit the safe moves in between.

        The result is empty only if no pair can be connected.
        """
        # First search only states that may be cleared; if that fails, all states that may leave fewer tiles.
        for ceiling in (1, tiles.bit_count()):
            self._line, self._best_line, self._fewest = [], [], tiles.bit_count()
            self._seen.clear()
            self._search(tiles, ceiling, self.nodes + self._budget, frozenset())
            if not self._fewest:
                break
        return self._best_line

    def _search(self, tiles: Bitboard, ceiling: int, limit: int, dead: frozenset[Bitboard]) -> bool:
        """Search depth-first; return True if the board is cleared or the budget is spent.

        States that must leave at least `ceiling` tiles, or no fewer than the best line so far, are pruned. If `ceiling`
        is 1, so are the pairs in `dead`; see `_dead_pairs`.
        """
        children: list[tuple[int, Bitboard, Bitboard]] = []
        for link in self._links(tiles, dead):
            if not self._finder.connects(link, tiles):
                continue
            pair = link[0]
            self.nodes += 1
            child = self._play_safe(tiles ^ pair)
            if (left := child.bit_count()) < self._fewest:
                self._fewest, self._best_line = left, [*self._line, pair]
            if not child or self.nodes >= limit:
                return True
            children.append((left, child, pair))
        # The sort is stable, so the order on the board breaks ties.
        children.sort(key=lambda entry: entry[0])
        for _, child, pair in children:
            if pair in dead:
                continue
            promising = child not in self._seen and self._lower_bound(child, dead) < min(ceiling, self._fewest)
            self._seen.add(child)
            if promising:
                self._line.append(pair)
                if self._search(child, ceiling, limit, dead):
                    return True
                self._line.pop()
            if ceiling == 1:
                dead |= {pair}
                dead = self._dead_pairs(tiles, dead) if promising else dead
        return False

    def _dead_pairs(self, tiles: Bitboard, dead: frozenset[Bitboard]) -> frozenset[Bitboard]:
        """Extend `dead`, a set of pairs that cannot be removed on the way to an empty board, now or later.

        Four equal tiles can be removed as two pairs in three ways. A way is impossible if one of its pairs is dead, or
        if some tiles could not be removed even if each tile of the other kinds could be paired more than once.
        """
        kinds = [ways for kind in self._kinds if len(ways := self._remaining(tiles, kind)) == 6]
        left, _, links = self._relax(tiles, self._links(tiles, dead))
        checked = 0
        for ways in cycle(kinds):
            if left or checked == len(kinds):
                break
            before, four = dead, ways[0][0] | ways[5][0]
            rest, blocked, _ = self._relax(tiles, [link for link in links if not link[0] & four])
            for way in zip(ways[:3], ways[:2:-1]) if rest != four else ():
                pairs = {pair for pair, _ in way}
                if not pairs <= dead and (pairs & dead or self._relax(rest, [*way, *blocked])[0]):
                    dead |= pairs
            checked += 1
            if dead != before:
                links = [link for link in links if link[0] not in dead]
                left, checked = self._relax(tiles, links)[0], 1
        return frozenset(pair for pair, _ in self._links(tiles, frozenset())) if left else dead

    def _lower_bound(self, tiles: Bitboard, dead: frozenset[Bitboard]) -> int:
        """Return a lower bound on the number of tiles that remain."""
        return self._relax(tiles, self._links(tiles, dead))[0].bit_count()

    def _relax(self, tiles: Bitboard, links: list[Link]) -> tuple[Bitboard, list[Link], list[Link]]:
        """Remove all tiles that can be removed if a removed tile can still be paired with others of its kind.

        Return the tiles and links that remain, and all links in an order that makes the next call faster: those used,
        as they were used, come first.
        """
        winding = self._finder.turns > 2
        used: list[Link] = []
        unused: list[Link] = []
        before = -1
        while before != tiles:
            before, waiting = tiles, []
            for link in links:
                pair, routes = link
                if not tiles & pair:
                    unused.append(link)
                    continue
                for route in routes:
                    if not tiles & route:
                        break
                else:
                    if not winding or not self._finder.connects(link, tiles):
                        waiting.append(link)
                        continue
                tiles &= ~pair
                used.append(link)
            links = waiting
        return tiles, links, used + links + unused

    def _play_safe(self, tiles: Bitboard) -> Bitboard:
        """Play all safe moves; their order does not affect the result."""
        before = -1
        while before != tiles:
            before = tiles
            for kind in self._kinds:
                for pair in self._safe_pairs(tiles, kind):
                    tiles ^= pair
        return tiles

    def _safe_pairs(self, tiles: Bitboard, kind: Sequence[Link]) -> Sequence[Bitboard]:
        """Return the pairs that remove the last two or four tiles of a kind, in order; empty if impossible."""
        left, connects = self._remaining(tiles, kind), self._finder.connects
        if len(left) == 1:  # two tiles
            return [left[0][0]] if connects(left[0], tiles) else ()
        if len(left) == 6:  # four tiles
            for first, second in zip(left, left[::-1]):
                if connects(first, tiles) and connects(second, tiles ^ first[0]):
                    return [first[0], second[0]]
        return ()

    def _links(self, tiles: Bitboard, dead: frozenset[Bitboard]) -> list[Link]:
        return [link for kind in self._kinds for link in self._remaining(tiles, kind) if link[0] not in dead]

    @staticmethod
    def _remaining(tiles: Bitboard, links: Iterable[Link]) -> list[Link]:
        return [link for link in links if tiles & link[0] == link[0]]
