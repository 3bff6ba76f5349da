"""Parking lots: legal moves of the vehicles, random lots, and shortest solutions.

Cells are numbered row by row, and sets of cells are bit masks. The state of a lot is the offset of each vehicle in its
row or column. Vehicle 0 must reach the right end of its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from vlmgym.errors import GenerationError
from vlmgym.sandbox.games.search import Plan, shortest_path

Offsets = tuple[int, ...]
Move = tuple[int, int]
"""Vehicle number and direction: 0 up, 1 right, 2 down, 3 left."""

MAX_LOTS = 1000
"""Maximum number of attempts per lot; each takes 2 to 8 on average, depending on the level."""
MAX_PLACES = 20
"""Maximum number of attempts to place vehicles, as a multiple of the number of vehicles."""
WALK = 40
"""Number of random moves to try from a solved lot, as a multiple of the number of vehicles."""
HORIZONTAL, LONG = 0.4, 0.45
"""Probabilities that a vehicle is horizontal, and that it is three cells long."""
EVERY = 8
"""Number of attempted moves between the states of a lot that are compared."""
MOST_NODES = 100_000
"""Limit on the number of states in the search for a solution; see `shortest_path`."""


@dataclass(frozen=True, slots=True)
class Vehicle:
    """A vehicle of `length` cells; `line` is the index of its row if `horizontal`, else of its column."""

    line: int
    length: int
    horizontal: bool


@dataclass(frozen=True)
class Lot:
    """Size of a lot, and the vehicles in it without their offsets."""

    rows: int
    columns: int
    vehicles: tuple[Vehicle, ...]

    @cached_property
    def masks(self) -> tuple[tuple[int, ...], ...]:
        """Set of cells that each vehicle covers, indexed by vehicle and offset."""
        return tuple(masks_of(self.rows, self.columns, vehicle) for vehicle in self.vehicles)

    def cells(self, vehicle: int, offset: int) -> list[tuple[int, int]]:
        """Row and column of each cell of a vehicle, from left to right or top to bottom."""
        one = self.vehicles[vehicle]
        along = range(offset, offset + one.length)
        return [(one.line, i) if one.horizontal else (i, one.line) for i in along]

    def solved(self, offsets: Offsets) -> bool:
        """True if vehicle 0 is at the right end of its row."""
        return offsets[0] == self.columns - self.vehicles[0].length

    def occupied(self, offsets: Offsets) -> int:
        """Set of cells covered by any vehicle."""
        taken = 0
        for masks, offset in zip(self.masks, offsets):
            taken |= masks[offset]
        return taken

    def moves(self, offsets: Offsets) -> Iterator[tuple[Move, Offsets]]:
        """Yield each legal move with the resulting offsets of all vehicles."""
        taken = self.occupied(offsets)
        for number, (options, offset) in enumerate(zip(self._options, offsets)):
            for move, after, entered in options[offset]:
                if not entered & taken:
                    yield move, (*offsets[:number], after, *offsets[number + 1 :])

    @cached_property
    def _options(self) -> list[list[list[tuple[Move, int, int]]]]:
        """Moves by vehicle and offset, each with the new offset and the cell that the vehicle enters, as a bit mask."""
        options = []
        for number, (vehicle, masks) in enumerate(zip(self.vehicles, self.masks)):
            directions = (3, 1) if vehicle.horizontal else (0, 2)
            steps = [list(zip(directions, (offset - 1, offset + 1))) for offset in range(len(masks))]
            options.append(
                [
                    [((number, d), to, masks[to] & ~masks[offset]) for d, to in found if 0 <= to < len(masks)]
                    for offset, found in enumerate(steps)
                ]
            )
        return options

    def solve(self, offsets: Offsets) -> Plan[Offsets, Move] | None:
        """Return a shortest solution, or None if none exists or the search exceeds `MOST_NODES`."""
        return shortest_path(offsets, self.moves, self.solved, MOST_NODES)


def make_lot(rows: int, columns: int, vehicles: int, lots: int, rng: np.random.Generator) -> tuple[Lot, Offsets]:
    """Make `lots` random lots, by random moves from solved lots; return the most blocked one and its offsets."""
    found: list[tuple[int, Lot, Offsets]] = []
    for _ in range(MAX_LOTS * lots):
        placed = _place(rows, columns, vehicles, rng)
        if placed is None:
            continue
        lot, offsets = placed
        value, offsets = max(_walk(lot, offsets, rng), key=lambda entry: entry[0])
        if value:
            found.append((value, lot, offsets))
        if len(found) == lots:
            _, lot, offsets = max(found, key=lambda entry: entry[0])
            return lot, offsets
    raise GenerationError(
        f"parking: no {rows} x {columns} lot with {vehicles} vehicles was found in {MAX_LOTS * lots} attempts"
    )


def _walk(lot: Lot, offsets: Offsets, rng: np.random.Generator) -> Iterator[tuple[int, Offsets]]:
    """Attempt random moves; after the first and then every `EVERY` attempts, yield `blocked` and the offsets."""
    now, taken, count = list(offsets), lot.occupied(offsets), len(offsets)
    for step, (number, side) in enumerate(rng.integers(0, (count, 2), (WALK * count, 2)).tolist()):
        masks, offset = lot.masks[number], now[number]
        after = offset + (1 if side else -1)
        if 0 <= after < len(masks) and not masks[after] & (taken ^ masks[offset]):
            taken ^= masks[offset] ^ masks[after]
            now[number] = after
        if step % EVERY == 0:
            yield blocked(lot, now, taken), tuple(now)


def blocked(lot: Lot, offsets: Sequence[int], taken: int) -> int:
    """Estimate the number of moves to a solution, including moves of blocking vehicles.

    Return 0 if the red car's way is free, or if no blocking vehicle could move out of it even on an empty lot.
    """
    row, end = lot.vehicles[0].line, offsets[0] + lot.vehicles[0].length
    total = 0
    for vehicle, masks, offset in zip(lot.vehicles, lot.masks, offsets):
        if vehicle.horizontal or vehicle.line < end or not offset <= row < offset + vehicle.length:
            continue
        others = taken ^ masks[offset]
        total += min(
            (
                abs(to - offset) + 2 * (masks[to] & others).bit_count()
                for to in (row - vehicle.length, row + 1)
                if 0 <= to < len(masks)
            ),
            default=0,
        )
    return total and total + lot.columns - end


def _place(rows: int, columns: int, vehicles: int, rng: np.random.Generator) -> tuple[Lot, Offsets] | None:
    """Place vehicles at random, the first at the exit; None if the attempts run out."""
    first = Vehicle(1 + int(rng.integers(rows - 2)), 2, True)
    placed, offsets = [first], [columns - 2]
    taken = masks_of(rows, columns, first)[-1]
    for across, long, line, offset in rng.random((MAX_PLACES * vehicles, 4)).tolist():
        if len(placed) == vehicles:
            return Lot(rows, columns, tuple(placed)), tuple(offsets)
        horizontal = across < HORIZONTAL
        one = Vehicle(int(line * (rows if horizontal else columns)), 3 if long < LONG else 2, horizontal)
        if horizontal and one.line == first.line:
            continue
        masks = masks_of(rows, columns, one)
        at = int(offset * len(masks))
        if not masks[at] & taken:
            taken |= masks[at]
            placed.append(one)
            offsets.append(at)
    return None


@lru_cache(maxsize=4096)
def masks_of(rows: int, columns: int, vehicle: Vehicle) -> tuple[int, ...]:
    """Return the set of cells that a vehicle covers at each offset."""
    span, step, start = (columns, 1, vehicle.line * columns) if vehicle.horizontal else (rows, columns, vehicle.line)
    first = sum(1 << start + i * step for i in range(vehicle.length))
    return tuple(first << offset * step for offset in range(span - vehicle.length + 1))
