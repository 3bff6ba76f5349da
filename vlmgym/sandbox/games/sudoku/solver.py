"""Sudoku: candidates, singles, search, and dealing puzzles with one solution.

A single is a number that follows from one of two rules, see `Single`. A set of numbers is an int whose bit n stands for
the number n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from vlmgym.errors import GenerationError

MAX_DEALS = 1000
"""Maximum number of attempts to deal a puzzle that needs a search; level 5 takes 5 on average."""


class Layout(NamedTuple):
    """Cells of each unit (rows, columns and boxes), and the indices of the units that contain each cell."""

    units: tuple[tuple[int, ...], ...]
    units_of: tuple[tuple[int, int, int], ...]


class Single(NamedTuple):
    """A number that must be in a cell, because the cell has no other candidate or a unit has no other cell for it.

    `unit` is the index of this unit, or None if the cell has no other candidate.
    """

    cell: int
    number: int
    unit: int | None


def box_shape(side: int) -> tuple[int, int]:
    """Rows and columns of a box: 2 x 2, 2 x 3 or 3 x 3 for 4, 6 or 9 numbers."""
    return {4: (2, 2), 6: (2, 3), 9: (3, 3)}[side]


@cache
def layout(side: int) -> Layout:
    """Units of a grid of `side` x `side` cells."""
    height, width = box_shape(side)
    cells = range(side * side)
    units_of = [
        (row, side + column, 2 * side + row // height * height + column // width)
        for row, column in (divmod(cell, side) for cell in cells)
    ]
    units = tuple(tuple(cell for cell in cells if unit in units_of[cell]) for unit in range(3 * side))
    return Layout(units, tuple(units_of))


class Puzzle:
    """A grid of numbers, row by row, 0 for an empty cell."""

    def __init__(self, numbers: Sequence[int], side: int) -> None:
        self.side, self.layout = side, layout(side)
        self.numbers = [0] * side * side
        self._free = [(2 << side) - 2] * 3 * side
        for cell, number in enumerate(numbers):
            if number:
                self.put(cell, number)

    def put(self, cell: int, number: int) -> None:
        """Write a number into an empty cell, or remove it from its cell."""
        self.numbers[cell] ^= number
        for unit in self.layout.units_of[cell]:
            self._free[unit] ^= 1 << number

    def candidates(self, cell: int) -> int:
        """Set of numbers that do not occur in the row, column or box of a cell."""
        free, (row, column, box) = self._free, self.layout.units_of[cell]
        return free[row] & free[column] & free[box]

    def options(self, cell: int) -> list[int]:
        """List the candidates of a cell."""
        found = self.candidates(cell)
        return [number for number in range(1, self.side + 1) if found >> number & 1]

    def single(self, cell: int, number: int) -> Single | None:
        """Return a number in an empty cell as a `Single` if one of the two rules proves it, else None."""
        if self.candidates(cell) == 1 << number:
            return Single(cell, number, None)
        for unit in self.layout.units_of[cell]:
            for other in self.layout.units[unit]:
                if other != cell and not self.numbers[other] and self.candidates(other) >> number & 1:
                    break
            else:
                return Single(cell, number, unit)
        return None

    def next_single(self, solution: Sequence[int]) -> Single | None:
        """Find a single, preferably in a cell with only one candidate; None if none exists."""
        empty = [cell for cell, number in enumerate(self.numbers) if not number]
        empty.sort(key=lambda cell: self.candidates(cell).bit_count() > 1)
        return next(filter(None, (self.single(cell, solution[cell]) for cell in empty)), None)

    def is_simple(self, solution: Sequence[int]) -> bool:
        """Return whether singles alone fill the grid."""
        rest = Puzzle(self.numbers, self.side)
        empty, before = [cell for cell, number in enumerate(self.numbers) if not number], None
        while empty != before:
            before = empty
            for cell in empty:
                if rest.single(cell, solution[cell]):
                    rest.put(cell, solution[cell])
            empty = [cell for cell in empty if not rest.numbers[cell]]
        return not empty

    def solutions(self, rng: np.random.Generator | None = None) -> Iterator[tuple[int, ...]]:
        """Yield all solutions, in random order if a generator is given."""
        fewest, chosen = self.side + 1, None
        for cell, number in enumerate(self.numbers):
            if not number and (count := self.candidates(cell).bit_count()) < fewest:
                fewest, chosen = count, cell
                if count <= 1:
                    break
        if chosen is None:
            yield tuple(self.numbers)
            return
        options = self.options(chosen)
        for number in options if rng is None else rng.permutation(options).tolist():
            self.put(chosen, number)
            yield from self.solutions(rng)
            self.put(chosen, number)

    def has_solution_without(self, cell: int, number: int) -> bool:
        """Return whether the puzzle has a solution with a number other than `number` in an empty cell."""
        for other in self.options(cell):
            if other != number:
                self.put(cell, other)
                found = next(Puzzle(self.numbers, self.side).solutions(), None)
                self.put(cell, other)
                if found is not None:
                    return True
        return False


@lru_cache(maxsize=4096)
def deal(side: int, clues: int, search: bool, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Deal a puzzle with exactly one solution; return the numbers of both, row by row.

    Cached because the episodes of a group share a seed.

    Args:
        side: Number of cells per row.
        clues: Number of clues; a puzzle has more if no further clue can be removed.
        search: If true, clues that only a search can recover are removed too, and puzzles that singles alone solve are
            rejected. If false, singles alone solve the puzzle.
        seed: Seed of the puzzle.

    Raises:
        GenerationError: No puzzle that needs a search was found.
    """
    rng = np.random.default_rng(seed)
    for _ in range(MAX_DEALS):
        puzzle, solution = _deal(side, clues, search, rng)
        if not (search and puzzle.is_simple(solution)):
            return tuple(puzzle.numbers), solution
    raise GenerationError(
        f"sudoku: no {side} x {side} puzzle with {clues} clues that needs a search was found in {MAX_DEALS} attempts; "
        "choose fewer clues or search=false"
    )


def _deal(side: int, clues: int, search: bool, rng: np.random.Generator) -> tuple[Puzzle, tuple[int, ...]]:
    solution = next(Puzzle([0] * side * side, side).solutions(rng))
    puzzle, left = Puzzle(solution, side), side * side
    order = rng.permutation(side * side).tolist()
    for by_search in (False, True) if search else (False,):
        for cell in order:
            number = puzzle.numbers[cell]
            if left > clues and number:
                puzzle.put(cell, number)
                if puzzle.single(cell, number) or (by_search and not puzzle.has_solution_without(cell, number)):
                    left -= 1
                else:
                    puzzle.put(cell, number)
    return puzzle, solution
