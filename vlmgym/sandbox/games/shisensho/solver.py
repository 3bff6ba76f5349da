"""Solver for Shisen-Sho: safe moves first, then a depth-first search over the others.

Removing tiles only opens paths, so removing the last tiles of a kind never hurts: the last two, or the last four in two
moves. Such moves are safe and need no search. The search decides which two of four equal tiles to remove first, and
plays all safe moves in between. It prunes visited states and, while it tries to clear the board, states where some
tiles could not be removed even if each tile could be paired more than once. The order of moves depends only on the
state, so searching again from a later state of a plan that clears the board expands no more nodes and finds the rest of
that plan.

With 4 copies, the solver clears all 500 solvable boards tested for each of these settings: 6 x 6 and 8 x 8 with 0, 1 or
2 turns, and 10 x 10 with 2 turns. Boards with 2 copies need no search.

| 500 boards, 4 copies | mean nodes | max nodes |
|---|---|---|
| 6 x 6, 2 turns | 6 | 36 |
| 8 x 8, 2 turns | 30 | 135 |
| 8 x 8, 1 turn (the hardest) | 162 | 9449 |

    python -m benchmarks.oracles shisensho --episodes 500
    python -m benchmarks.oracles shisensho --episodes 500 --config rows=8 columns=8 copies=4 turns=2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vlmgym.sandbox.core.coordinates import Pair
from vlmgym.sandbox.games.shisensho.paths import Bitboard, Board, Square, path_finder

SquarePair = tuple[Square, Square]

NODE_BUDGET = 10_000
"""Maximum number of nodes per search. A move takes two searches if the first cannot clear the board."""


@dataclass(frozen=True, slots=True)
class ClearingPlan:
    """Pairs of cells to remove in order, and the number of search nodes (0 if all moves were safe)."""

    moves: tuple[Pair, ...]
    nodes: int


def plan(board: Board, turns: int, budget: int = NODE_BUDGET) -> ClearingPlan:
    """Plan moves that clear a board.

    Each search visits up to `budget` nodes. The first search tries to clear the board; if it fails, further searches
    remove as many tiles as possible.
    """
    solver = _Solver(board, turns, budget)
    moves = tuple(solver.moves())
    return ClearingPlan(moves, solver.nodes)


def best_move(board: Board, turns: int, budget: int = NODE_BUDGET) -> Pair | None:
    """Return the first move of `plan`, or None if no pair can be connected."""
    return next(_Solver(board, turns, budget).moves(), None)


class _Solver:
    """A search on one board. A state is the set of squares that still have a tile."""

    def __init__(self, board: Board, turns: int, budget: int) -> None:
        self.nodes = 0
        self._finder = path_finder(len(board), len(board[0]), turns)
        self._groups = self._finder.groups(board)
        self._tiles: Bitboard = sum(1 << square for group in self._groups for square in group)
        self._budget = budget
        self._seen: set[Bitboard] = set()
        self._line: list[SquarePair] = []
        self._best_line: list[SquarePair] = []
        self._fewest = 0

    def moves(self) -> Iterator[Pair]:
        """Yield the moves of a plan, removing the tiles of each move from the board."""
        branches: list[SquarePair] = []
        while True:
            safe = (pairs[0] for group in self._groups if (pairs := self._safe_pairs(self._tiles, group)))
            if (pair := next(safe, None)) is None:
                branches = branches or self._branches(self._tiles)
                if not branches:
                    return
                pair = branches.pop(0)
            self._tiles ^= 1 << pair[0] | 1 << pair[1]
            yield self._finder.cell(pair[0]) + self._finder.cell(pair[1])

    def _branches(self, tiles: Bitboard) -> list[SquarePair]:
        """Find the moves that leave the fewest tiles in a state without safe pairs; omit the safe moves in between.

        The result is empty only if no pair can be connected.
        """
        # First search only states that may be cleared; if that fails, all states that may leave fewer tiles.
        for ceiling in (1, tiles.bit_count()):
            self._line, self._best_line, self._fewest = [], [], tiles.bit_count()
            self._seen.clear()
            self._search(tiles, ceiling, self.nodes + self._budget)
            if not self._fewest:
                break
        return self._best_line

    def _search(self, tiles: Bitboard, ceiling: int, limit: int) -> bool:
        """Search depth-first; return True if the board is cleared or the budget is spent.

        States that must leave at least `ceiling` tiles, or no fewer than the best line so far, are pruned.
        """
        children: list[tuple[int, Bitboard, SquarePair]] = []
        for pair in self._finder.pairs(tiles, (self._remaining(tiles, group) for group in self._groups)):
            self.nodes += 1
            child = self._play_safe(tiles ^ (1 << pair[0] | 1 << pair[1]))
            if (left := child.bit_count()) < self._fewest:
                self._fewest, self._best_line = left, [*self._line, pair]
            if not child or self.nodes >= limit:
                return True
            children.append((left, child, pair))
        # The sort is stable, so the order on the board breaks ties.
        children.sort(key=lambda entry: entry[0])
        for _, child, pair in children:
            if child in self._seen:
                continue
            self._seen.add(child)
            if self._lower_bound(child) >= min(ceiling, self._fewest):
                continue
            self._line.append(pair)
            if self._search(child, ceiling, limit):
                return True
            self._line.pop()
        return False

    def _lower_bound(self, tiles: Bitboard) -> int:
        """Return a lower bound on the number of tiles that remain.

        Here, a removed tile can still be paired with others of its kind, so all tiles that can be removed in the game
        are removed here too.
        """
        groups = [self._remaining(tiles, group) for group in self._groups]
        before = -1
        while before != tiles:
            before = tiles
            for group in groups:
                for first, second in self._finder.pairs(tiles, (group,)):
                    tiles &= ~(1 << first | 1 << second)
        return tiles.bit_count()

    def _play_safe(self, tiles: Bitboard) -> Bitboard:
        """Play all safe moves; their order does not affect the result."""
        before = -1
        while before != tiles:
            before = tiles
            for group in self._groups:
                for pair in self._safe_pairs(tiles, group):
                    tiles ^= 1 << pair[0] | 1 << pair[1]
        return tiles

    def _safe_pairs(self, tiles: Bitboard, group: Sequence[Square]) -> Sequence[SquarePair]:
        """Return the pairs that remove the last two or four tiles of a kind, in order; empty if impossible."""
        left = self._remaining(tiles, group)
        if len(left) == 2:
            return list(self._finder.pairs(tiles, (left,)))
        if len(left) == 4:
            for first in self._finder.pairs(tiles, (left,)):
                after = tiles ^ (1 << first[0] | 1 << first[1])
                rest = [square for square in left if after >> square & 1]
                for second in self._finder.pairs(after, (rest,)):
                    return [first, second]
        return ()

    @staticmethod
    def _remaining(tiles: Bitboard, group: Iterable[Square]) -> list[Square]:
        return [square for square in group if tiles >> square & 1]
