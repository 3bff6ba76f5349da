"""Expectimax for 2048 on boards of any size.

A layer of the tree is one NumPy array: the exponents of all its boards (2 is 1, 4 is 2, ..., an empty cell is 0) as
uint8 of shape (rows, columns, boards), so that sliding and judging thousands of boards takes a few dozen calls. The
search is as deep as a budget allows, which bounds the cost of a move: deep on a crowded board, where it matters, and
shallow on an open one. It uses no chance and no clock.

On the 4 x 4 board it made the tile 2048 within 1200 moves in 99 of 100 games, at 3.2 ms of processor time a move:

    python benchmarks/oracles.py 2048 --episodes 100 --max-turns 1200

A position is judged by its lines (rows and columns), after the well-known evaluation of nneonneo's 2048-ai: empty cells
and equal neighbours are good; a line that goes up and down, and many middling tiles instead of few large ones, are bad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Boards = NDArray[np.uint8]
Values = NDArray[np.float64]

BUDGET = 300_000
"""Cells of all boards of the last layer, at most, as far as can be told before it is made."""
DEEPEST = 8
"""Own moves looked ahead, at most; only reached where next to no cell is empty."""

LINE = 200_000
"""What a line is worth before it is judged, so that going on is worth more than losing, which is worth 0."""
EMPTY = 270
MERGE = 700
WAVE = 47
"""Cost of a line that is not sorted, a unit of the fourth power of the exponents by which it goes back."""
SMALL = 11
"""Cost of a tile, a unit of its exponent to the power of 3.5."""
WON = 1e12
"""What the goal is worth, over the number of moves to it."""

_LIKELY_MOVES = 3.5
_BLOCK = 1 << 16
"""Cells judged at once: as many as a processor's cache holds."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found.

    Attributes:
        action: The best move (0 up, 1 right, 2 down, 3 left), or None if the game has ended.
        values: What each of the four moves is worth, -1 where it changes nothing.
        depth: Own moves looked ahead.
        nodes: Boards in the tree, after own moves and after new tiles.
    """

    action: int | None
    values: tuple[float, ...]
    depth: int
    nodes: int


def search(
    board: Sequence[Sequence[int]], four_probability: float = 0.1, goal: int | None = None, budget: int = BUDGET
) -> Search:
    """The best move in a position.

    Args:
        board: The numbers on the tiles, 0 for an empty cell.
        four_probability: Probability that a new tile is a 4.
        goal: The tile that wins the game, if one does.
        budget: How much to search; see `BUDGET`.
    """
    return _Tree(four_probability, goal, budget).search(board)


class _Tree:
    """One search: its settings, and counts of what it has seen."""

    def __init__(self, four_probability: float, goal: int | None, budget: int) -> None:
        self._new_tiles = [(e, p) for e, p in ((1, 1 - four_probability), (2, four_probability)) if p > 0]
        self._goal = None if goal is None else goal.bit_length() - 1
        self._budget = budget
        self._depth = self._nodes = 0

    def search(self, board: Sequence[Sequence[int]]) -> Search:
        root = np.array([[max(0, tile.bit_length() - 1) for tile in row] for row in board], dtype=np.uint8)
        if self._goal is not None and root.max() >= self._goal:
            return Search(None, (-1.0,) * 4, 0, 0)
        values = tuple(self._own_turn(root[:, :, None], 1)[:, 0].tolist())
        best = max(values)
        return Search(None if best < 0 else values.index(best), values, self._depth, self._nodes)

    def _own_turn(self, boards: Boards, depth: int) -> Values:
        """Values of the four moves, shape (4, boards); -1 where a move changes nothing."""
        moved = slide_all(boards)
        legal = (moved != boards[:, :, None]).any(axis=(0, 1))
        values = np.full(legal.shape, -1.0)
        if legal.any():
            values[legal] = self._after_move(moved[:, :, legal], depth)
        return values

    def _after_move(self, boards: Boards, depth: int) -> Values:
        """Values of boards on which a new tile is about to appear, shape (boards,)."""
        self._depth = max(self._depth, depth)
        self._nodes += boards.shape[2]
        children = np.count_nonzero(boards == 0) * len(self._new_tiles)
        deeper = depth < DEEPEST and children * _LIKELY_MOVES * boards[..., 0].size <= self._budget
        values = self._new_tile(boards, depth) if deeper else judge(boards)
        if self._goal is not None:
            values[boards.max(axis=(0, 1)) >= self._goal] = WON / depth
        return values

    def _new_tile(self, boards: Boards, depth: int) -> Values:
        """Mean values over all places of a new tile, shape (boards,)."""
        row, column, parent = np.nonzero(boards == 0)
        after = np.tile(boards[:, :, parent], len(self._new_tiles))
        weights = np.empty(after.shape[2])
        share = 1.0 / np.bincount(parent, minlength=boards.shape[2])[parent]
        for i, (exponent, probability) in enumerate(self._new_tiles):
            child = np.arange(len(parent)) + i * len(parent)
            after[row, column, child] = exponent
            weights[child] = probability * share
        self._nodes += after.shape[2]
        values = np.maximum(self._own_turn(after, depth + 1).max(axis=0), 0.0)
        means = np.bincount(np.tile(parent, len(self._new_tiles)), values * weights, boards.shape[2])
        return means.astype(np.float64, copy=False)


def slide_all(boards: Boards) -> Boards:
    """Boards after sliding up, right, down and left: (rows, columns, boards) -> (rows, columns, 4, boards)."""
    rows, columns, count = boards.shape
    moved = np.empty((rows, columns, 4, count), dtype=np.uint8)
    for lines, result, ahead, back in (
        (boards, moved, 0, 2),
        (boards.transpose(1, 0, 2), moved.transpose(1, 0, 2, 3), 3, 1),
    ):
        both = np.stack([lines, lines[::-1]], axis=1)
        _slide(both)
        result[:, :, ahead] = both[:, 0]
        result[:, :, back] = both[::-1, 1]
    return moved


def judge(boards: Boards) -> Values:
    """How good boards are, shape (rows, columns, boards) -> (boards,)."""
    block = max(1, _BLOCK // boards[..., 0].size)
    starts = range(0, boards.shape[2], block)
    return np.concatenate([_judge(np.ascontiguousarray(boards[:, :, start : start + block])) for start in starts])


def _judge(boards: Boards) -> Values:
    rows, columns, count = boards.shape
    exponents = boards.astype(np.float32)
    squares = exponents * exponents
    powers = squares * squares
    squares *= exponents
    squares *= np.sqrt(exponents)
    small = np.rint(SMALL * squares).reshape(-1, count).sum(axis=0)
    empty = (boards == 0).reshape(-1, count).sum(axis=0, dtype=np.uint8)
    wave = np.zeros(count, dtype=np.float32)
    pairs = np.zeros(count, dtype=np.uint8)
    for lines, heights in ((boards, powers), (boards.transpose(1, 0, 2), powers.transpose(1, 0, 2))):
        up = np.zeros(heights.shape[1:], dtype=np.float32)
        for i in range(len(lines) - 1):
            up += np.maximum(heights[i + 1] - heights[i], 0)
            pairs += ((lines[i] == lines[i + 1]) & (lines[i] != 0)).sum(axis=0, dtype=np.uint8)
        down = up + heights[0] - heights[-1]
        wave += np.minimum(up, down).sum(axis=0)
    good = 2 * (EMPTY * empty.astype(np.float64) + MERGE * pairs.astype(np.float64))
    bad = 2 * small.astype(np.float64) + WAVE * wave.astype(np.float64)
    values: Values = LINE * (rows + columns) + good - bad
    return values


def _slide(lines: Boards) -> None:
    """Slide in place towards index 0 of the first axis."""
    _close_gaps(lines)
    for i in range(len(lines) - 1):
        merged = (lines[i] == lines[i + 1]) & (lines[i] != 0)
        lines[i] += merged
        lines[i + 1] *= ~merged
    _close_gaps(lines)


def _close_gaps(lines: Boards) -> None:
    """Swap empty cells step by step to the end, as in a bubble sort."""
    for end in range(len(lines) - 1, 0, -1):
        for i in range(end):
            moved = lines[i + 1] * (lines[i] == 0)
            lines[i] += moved
            lines[i + 1] -= moved
