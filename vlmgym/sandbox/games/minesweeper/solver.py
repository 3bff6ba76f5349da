"""Minesweeper: neighbours, opening cells, deduction, and dealing boards that need no guess.

A set of cells is an int; the bit row * columns + column stands for a cell. A clue is a set of hidden cells and
the number of mines among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from vlmgym.errors import GenerationError

MAX_DEALS = 2000
"""Maximum number of attempts to deal a board of up to 100 cells, fewer if it is larger; level 5 takes 3 on average."""
ALL = -1
"""Source of the clue that states the total number of mines."""


class Proof(NamedTuple):
    """Proof that a cell is or is not a mine, from one or two numbers and from the proofs of earlier rounds.

    Attributes:
        mine: True if the cell is a mine, False if it is safe.
        sources: Cells whose numbers are used; `ALL` stands for the total number of mines.
        round: Round of the deduction, from 0.
    """

    mine: bool
    sources: tuple[int, ...]
    round: int


Proofs = Mapping[int, Proof]
"""Proofs by cell, in order of rounds."""

_Fact = tuple[int, bool, tuple[int, ...]]
"""A set of cells, whether they are mines, and the sources of the proof."""


@cache
def neighbours(rows: int, columns: int) -> tuple[int, ...]:
    """Return the set of neighbours of each cell."""
    near = []
    for row, column in product(range(rows), range(columns)):
        around = product(
            range(max(0, row - 1), min(rows, row + 2)), range(max(0, column - 1), min(columns, column + 2))
        )
        near.append(sum(1 << r * columns + c for r, c in around if (r, c) != (row, column)))
    return tuple(near)


def opened_by(near: tuple[int, ...], mines: int, cell: int, opened: int) -> int:
    """Return the set of open cells after opening a cell; cells without adjacent mines also open their neighbours."""
    opened |= 1 << cell
    waiting = [cell]
    while waiting:
        around = near[waiting.pop()]
        if around & mines:
            continue
        new = around & ~opened
        opened |= new
        waiting.extend(cells_of(new))
    return opened


def deduce(near: tuple[int, ...], numbers: Mapping[int, int], mine_count: int, pairs: bool) -> Proofs:
    """Prove which hidden cells are safe and which are mines, as far as possible.

    Args:
        near: Set of neighbours of each cell.
        numbers: Numbers that the open cells show, by cell.
        mine_count: Number of mines on the board.
        pairs: Also compare pairs of clues when single clues prove nothing new.

    Returns:
        Proofs of the cells that could be decided.
    """
    hidden = (1 << len(near)) - 1
    for cell in numbers:
        hidden ^= 1 << cell
    clues = [(near[cell] & hidden, number, cell) for cell, number in numbers.items() if near[cell] & hidden]
    clues.append((hidden, mine_count, ALL))
    proofs: dict[int, Proof] = {}
    safe, mines, number_of_round = 0, 0, 0
    while True:
        left = [
            (cells & ~(safe | mines), count - (cells & mines).bit_count(), source)
            for cells, count, source in clues
            if cells & ~(safe | mines)
        ]
        new: list[_Fact] = [
            (cells, count > 0, (source,)) for cells, count, source in left if count in (0, cells.bit_count())
        ]
        if pairs and not new:
            new = list(islice(_compare(left), 2))
        if not new:
            return proofs
        for cells, mine, sources in new:
            if mine:
                mines |= cells
            else:
                safe |= cells
            for cell in cells_of(cells):
                proofs.setdefault(cell, Proof(mine, sources, number_of_round))
        number_of_round += 1


def _compare(clues: list[tuple[int, int, int]]) -> Iterator[_Fact]:
    """Yield facts that follow from two clues.

    If the first clue has n cells outside the second clue, and n more mines, these n cells are mines, and the cells of
    the second clue outside the first are safe.
    """
    for one, one_count, source in clues:
        for two, two_count, other in clues:
            if one & two and one != two and one_count - two_count == (one & ~two).bit_count():
                if mines := one & ~two:
                    yield mines, True, (source, other)
                if safe := two & ~one:
                    yield safe, False, (source, other)


def argument(near: tuple[int, ...], proofs: Proofs, cell: int) -> list[int]:
    """List the cells whose proofs are needed to prove a cell, in order, and then the cell itself."""
    needed = {cell}
    for other in reversed([*proofs]):
        proof = proofs[other]
        if other in needed:
            around = -1 if ALL in proof.sources else 0
            for source in proof.sources:
                around |= near[source] if source != ALL else 0
            needed |= {each for each, earlier in proofs.items() if earlier.round < proof.round and around >> each & 1}
    return [each for each in proofs if each in needed]


def solvable(near: tuple[int, ...], mines: int, opened: int, pairs: bool) -> bool:
    """Return whether deduction alone opens all cells without mines."""
    mine_count = mines.bit_count()
    while (opened | mines).bit_count() < len(near):
        numbers = {cell: (near[cell] & mines).bit_count() for cell in cells_of(opened)}
        proofs = deduce(near, numbers, mine_count, pairs)
        safe = [cell for cell, proof in proofs.items() if not proof.mine]
        if not safe:
            return False
        for cell in safe:
            opened = opened_by(near, mines, cell, opened)
    return True


@lru_cache(maxsize=4096)
def deal(rows: int, columns: int, mine_count: int, compared: int, seed: int) -> tuple[int, int]:
    """Deal mines and open a first cell without adjacent mines; return the mines and the open cells.

    The board has cells left to open and, unless `compared` is 0, can be solved by comparing at most `compared` numbers
    at a time. Cached because the episodes of a group start from the same seed.

    Raises:
        GenerationError: No such board was found.
    """
    rng, near = np.random.default_rng(seed), neighbours(rows, columns)
    attempts = MAX_DEALS * 100 // max(100, len(near))
    for _ in range(attempts):
        first = int(rng.integers(len(near)))
        free = [cell for cell in range(len(near)) if cell != first and not near[first] >> cell & 1]
        if mine_count >= len(free):
            continue
        mines = sum(1 << free[i] for i in rng.choice(len(free), mine_count, replace=False).tolist())
        opened = opened_by(near, mines, first, 0)
        finished = (opened | mines).bit_count() == len(near)
        if not finished and (not compared or solvable(near, mines, opened, compared > 1)):
            return mines, opened
    solved, advice = f" that can be solved by comparing {compared} numbers", " or compared=0"
    raise GenerationError(
        f"minesweeper: no {rows} x {columns} board with {mine_count} mines{solved if compared else ''} was found in "
        f"{attempts} attempts; choose fewer mines{advice if compared else ''}"
    )


def cells_of(cells: int) -> list[int]:
    """List the cells of a set."""
    found = []
    while cells:
        lowest = cells & -cells
        found.append(lowest.bit_length() - 1)
        cells ^= lowest
    return found
