"""Random Sokoban rooms, made by pulling boxes away from their targets, so every room can be solved.

Cells are numbered row by row, and sets of cells are bit masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vlmgym.errors import GenerationError
from vlmgym.sandbox.core.named_actions import STEPS

MAX_ROOMS = 5000
"""Maximum number of attempts to make a room; rooms take 1 to 7 on average, depending on the level."""
FLOOR = 0.55
"""Fraction of the cells within the outer walls that are floor."""
PULLS = 14
"""Number of attempted pulls, as a multiple of the number of boxes; each pulls a random box by up to `REACH` cells."""
REACH = 4
APART = 1.5
"""Minimum average distance from a room's boxes to their nearest targets, in cells."""


@dataclass(frozen=True, slots=True)
class Room:
    """Floor, targets and boxes as sets of cells, and the player's cell."""

    floor: int
    targets: int
    boxes: int
    player: int


@lru_cache
def steps(columns: int) -> tuple[int, ...]:
    """Return the change in cell number for a step in each direction, in the order of `DIRECTIONS`."""
    return tuple(row * columns + column for row, column in STEPS)


def reachable(player: int, free: int, columns: int) -> int:
    """Return the set of cells that the player can walk to through `free` cells; the border must not be free."""
    reached, before = 1 << player, 0
    while reached != before:
        before = reached
        reached |= (reached << 1 | reached >> 1 | reached << columns | reached >> columns) & free
    return reached


def make_room(rows: int, columns: int, boxes: int, rng: np.random.Generator) -> Room:
    """Make a random room with no box on a target."""
    for _ in range(MAX_ROOMS):
        floor = _floor(rows, columns, rng)
        cells = [cell for cell in _cells(floor) if any(_free(floor, cell, move) for move in steps(columns))]
        if len(cells) <= boxes:
            continue
        chosen = [cells[i] for i in rng.permutation(len(cells))[: boxes + 1].tolist()]
        targets = sum(1 << cell for cell in chosen[:boxes])
        found = _pulled(floor, targets, chosen[boxes], columns, boxes, rng)
        if found is not None:
            return found
    raise GenerationError(f"sokoban: no {rows} x {columns} room with {boxes} boxes was found in {MAX_ROOMS} attempts")


def _floor(rows: int, columns: int, rng: np.random.Generator) -> int:
    """Carve a connected floor by a random walk that widens its path."""
    goal = max(6, round((rows - 2) * (columns - 2) * FLOOR))
    row, column = int(rng.integers(1, rows - 1)), int(rng.integers(1, columns - 1))
    floor = 1 << row * columns + column
    while floor.bit_count() < goal:
        down, right = STEPS[int(rng.integers(4))]
        for _ in range(int(rng.integers(1, 3))):
            row, column = min(max(row + down, 1), rows - 2), min(max(column + right, 1), columns - 2)
            beside = min(column + 1, columns - 2) if down else column
            below = min(row + 1, rows - 2) if right else row
            floor |= 1 << row * columns + column | 1 << below * columns + beside
    return floor


def _pulled(floor: int, targets: int, player: int, columns: int, count: int, rng: np.random.Generator) -> Room | None:
    """Pull boxes at random; return the last room that has no box on a target and satisfies `APART`, or None."""
    moves = steps(columns)
    boxes, found = targets, None
    drawn = rng.integers(0, (count, 4, REACH), (PULLS * count, 3)).tolist()
    for index, direction, reach in drawn:
        cells = _cells(boxes)
        box, move = cells[index], moves[direction]
        free = floor & ~boxes
        if not _free(free, box, move):
            continue
        if not reachable(player, free, columns) >> box + move & 1:
            continue
        player = box + move
        for _ in range(reach + 1):
            if not free >> player + move & 1:
                break
            boxes ^= 1 << player - move | 1 << player
            player += move
            free = floor & ~boxes
        if not boxes & targets and _distance(boxes, targets, columns) >= APART * count:
            found = Room(floor, targets, boxes, player)
    return found


def _free(floor: int, cell: int, move: int) -> bool:
    """True if a box can be pulled from a cell: the next two cells in the direction of `move` are free."""
    return bool(floor >> cell + move & 1 and floor >> cell + 2 * move & 1)


def _distance(boxes: int, targets: int, columns: int) -> int:
    """Sum of the Manhattan distances from boxes to their nearest targets."""
    goals = [divmod(cell, columns) for cell in _cells(targets)]
    places = (divmod(cell, columns) for cell in _cells(boxes))
    return sum(min(abs(row - r) + abs(column - c) for r, c in goals) for row, column in places)


def _cells(mask: int) -> list[int]:
    return [cell for cell in range(mask.bit_length()) if mask >> cell & 1]
