"""Parking: move vehicles along their rows and columns until the red car can leave."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from string import ascii_lowercase, ascii_uppercase
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.base import Answer, unreadable, word_answer
from vlmgym.sandbox.answers.choice import DIRECTIONS, WAY, neighbour
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, retry
from vlmgym.sandbox.core.search import Plan, Planner
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import BLACK, Canvas, Colour, blend

Offsets = tuple[int, ...]
UInt64: TypeAlias = npt.NDArray[np.uint64]
Indices: TypeAlias = npt.NDArray[np.intp]
Move = tuple[int, int]
"""Vehicle number and direction: 0 up, 1 right, 2 down, 3 left."""

EMPTY = ("empty", "", False)
RED: Colour = (206, 36, 40)
OTHERS: tuple[Colour, ...] = (
    (44, 112, 196),
    (58, 136, 84),
    (150, 96, 176),
    (196, 132, 32),
    (40, 150, 160),
    (124, 96, 76),
)
INK: Colour = (255, 252, 246)
GROUND: Colour = (84, 88, 98)
EXIT: Colour = (250, 206, 60)

PROMPT_V1 = """\
The image shows a parking lot with {rows} rows and {columns} columns and vehicles marked with letters. {numbering} \
Each turn, one vehicle moves one cell along its length: those in a row left or right, those in a column up or down. \
Vehicles cannot leave the lot or pass through each other. Bring the red car A to the right end of its row (yellow \
stripes).
Actions: {actions}.
{form}"""

_MOVE = re.compile(r"([a-z])[\s,:]+(up|right|down|left)")


class ParkingConfig(BoardConfig):
    """Configuration of the parking lot."""

    rows: int = config_field("reasoning", [4, 5, 6, 6, 6], "Rows of the lot.", ge=4, le=8)
    columns: int = config_field("reasoning", [4, 5, 6, 6, 6], "Columns of the lot.", ge=4, le=8)
    vehicles: int = config_field("reasoning", [3, 5, 8, 9, 10], "Number of vehicles, red car included.", ge=2, le=14)
    lots: int = config_field(
        "reasoning", [1, 3, 4, 12, 50], "Number of random lots to generate; the most blocked one is used.", ge=1, le=50
    )

    def model_post_init(self, context: object) -> None:
        if self.vehicles > (most := self.cell_count * 3 // 8):
            raise ValueError(
                f"{self.vehicles} vehicles do not fit on {self.rows} x {self.columns} cells; at most {most} do"
            )


@dataclass(frozen=True, slots=True)
class ParkingState:
    """Vehicles in letter order, red car first, and their offsets from the left or top, in cells."""

    vehicles: tuple[Vehicle, ...]
    offsets: Offsets
    variation_seed: int = 0


class VehicleMove(Answer[Move]):
    """The letter of a vehicle and a direction: `B up`."""

    form = "letter and direction"
    sentence = "the letter of a vehicle and up, right, down or left, for example B up"

    @cached_property
    def space(self) -> spaces.MultiDiscrete:
        """Vehicle number and direction."""
        return spaces.MultiDiscrete([self.config.vehicles, 4])

    def parse(self, text: str) -> Move:
        word = word_answer(word_answer(text, ("move",)), ("vehicle", "car", "truck"))
        match = _MOVE.fullmatch(word)
        if match is None or (number := ascii_lowercase.index(match[1])) >= self.config.vehicles:
            last = ascii_uppercase[self.config.vehicles - 1]
            raise unreadable(text, f"a letter from A to {last} and up, right, down or left")
        return number, DIRECTIONS.index(match[2])

    def format(self, action: Move) -> str:
        return f"{ascii_uppercase[action[0]]} {DIRECTIONS[action[1]]}"

    def check(self, action: object) -> None:
        """Raise `IllegalAction` unless an action has the number of a vehicle and of a direction."""
        vehicle, direction = self.numbers(action, "number of the vehicle, and direction")
        if not (0 <= vehicle < self.config.vehicles and 0 <= direction < 4):
            raise IllegalAction(
                f"{action!r} is not an action: a vehicle, 0 to {self.config.vehicles - 1}, and a direction, 0 to 3"
            )


class Parking(BoardGame[ParkingState, Move]):
    """Move vehicles out of the way of the red car.

    Description:
        Each turn, one vehicle moves one cell forwards or backwards in its row or column. Lots are made by random moves
        from a solved lot, so they can always be solved.

    Observation:
        The lot as an RGB image. Vehicles are marked with letters from A, the red car.

    Action:
        `MultiDiscrete([vehicles, 4])`: number of the vehicle, from 0, and direction: 0 up, 1 right, 2 down, 3 left.

    Reward:
        1 when the red car reaches the exit; 0 otherwise.

    Episode end:
        The red car is at the right end of its row. Metrics: solved, cells to the exit.

    Oracle:
        Plays a shortest solution. It gives up if the search exceeds 100,000 states, which does not happen at levels 1
        to 5.
    """

    name = "parking"
    statements = re.compile(
        r"The red car A in row \d{1,4} ends in column \d{1,4}; in its way: (?:nothing|[A-Z](?:, [A-Z]){0,9})\."
        rf"|I move [A-Z] {WAY}\."
    )
    skills = ("planning", "search")
    joined = True
    answer = VehicleMove()
    optimal_oracle = True
    Config = ParkingConfig
    State = ParkingState
    prompt_template = PROMPT_V1
    perception_form = "the lot, one line per row, cells separated by commas, each the letter of the vehicle, or empty"

    def deal(self, rng: np.random.Generator) -> ParkingState:
        c = self.config
        lot, offsets = make_lot(c.rows, c.columns, c.vehicles, c.lots, rng)
        return ParkingState(lot.vehicles, offsets)

    def legal_actions(self, state: ParkingState) -> tuple[Move, ...]:
        lot = self._lot(state)
        return () if lot.solved(state.offsets) else lot.moves(state.offsets)

    def step(self, state: ParkingState, action: Move, rng: np.random.Generator) -> Step[ParkingState]:
        self.answer.check(action)
        lot = self._lot(state)
        if action not in lot.moves(state.offsets):
            raise IllegalAction(f"vehicle {self._why_not(state, action)}")
        offsets = moved(state.offsets, action)
        return Step(ParkingState(state.vehicles, offsets, state.variation_seed), float(lot.solved(offsets)))

    def ended(self, state: ParkingState) -> str | None:
        return "the red car is at the exit" if self._lot(state).solved(state.offsets) else None

    def best_action(self, state: ParkingState) -> Move | None:
        """First move of a shortest solution; None if solved, unsolvable, or the search exceeds 100,000 states."""
        planner = _planner(self.config.rows, self.config.columns, state.vehicles)
        return planner.move(state.offsets)

    def metrics(self, state: ParkingState, infos: Infos) -> Metrics:
        left = self.config.columns - state.vehicles[0].length - state.offsets[0]
        return {"solved": float(left == 0), "cells to the exit": float(left)}

    def cells(self, state: ParkingState) -> Grid:
        """Vehicle in each cell, the sides on which the vehicle continues, and whether the cell is the exit."""
        rows: list[list[Hashable]] = [[EMPTY] * self.config.columns for _ in range(self.config.rows)]
        lot, exit_cell = self._lot(state), (state.vehicles[0].line, self.config.columns - 1)
        rows[exit_cell[0]][-1] = ("empty", "", True)
        for number, offset in enumerate(state.offsets):
            sides = "lr" if state.vehicles[number].horizontal else "tb"
            cells = lot.cells(number, offset)
            for index, (row, column) in enumerate(cells):
                joins = sides[: index > 0] + sides[1:] * (index < len(cells) - 1)
                rows[row][column] = (ascii_uppercase[number], joins, (row, column) == exit_cell)
        return list(map(tuple, rows))

    def paint_cell(self, canvas: Canvas, cell: tuple[str, str, bool], angle: float) -> None:
        letter, joins, is_exit = cell
        side = canvas.width
        canvas.rectangle(0, 0, side, side, blend(GROUND, BLACK, 0.2))
        canvas.rectangle(1, 1, side - 2, side - 2, self.tint(GROUND))
        if letter != "empty":
            self._paint_vehicle(canvas, letter, joins, angle)
        elif is_exit:
            canvas.text("EXIT", side * 0.43, side / 2, side * 0.22, self.tint(EXIT), angle=angle)
        if is_exit:
            canvas.rectangle(side * 0.86, 0, side * 0.14, side, BLACK)
            for i in range(4):
                canvas.rectangle(side * 0.87, side * (0.02 + 0.25 * i), side * 0.13, side * 0.16, self.tint(EXIT))

    def _paint_vehicle(self, canvas: Canvas, letter: str, joins: str, angle: float) -> None:
        side = canvas.width
        colour = self.tint(RED if letter == "A" else OTHERS[ascii_uppercase.index(letter) % len(OTHERS)])
        edge, inner = side * 0.09, side * 0.13
        for inset, fill in ((edge, blend(colour, BLACK, 0.35)), (inner, colour)):
            left, top = (-side if "l" in joins else inset), (-side if "t" in joins else inset)
            right, bottom = (2 * side if "r" in joins else side - inset), (2 * side if "b" in joins else side - inset)
            canvas.rectangle(left, top, right - left, bottom - top, fill, radius=side * 0.2)
        canvas.text(letter, side / 2, side / 2, side * 0.32, self.tint(INK), angle=angle)

    def explain(self, state: ParkingState, action: Move) -> str:
        """State which vehicles are in the red car's way."""
        row, lot = state.vehicles[0].line, self._lot(state)
        end = lot.cells(0, state.offsets[0])[-1][1]
        names = [str(cell[0]) for cell in self.cells(state)[row][end + 1 :]]  # type: ignore[index]
        blocking = [name for name in names if name != "empty"]
        ways = f"in its way: {', '.join(blocking) or 'nothing'}"
        where = f"The red car A in row {row + self.config.origin} ends in column {end + self.config.origin}; {ways}."
        return f"{where} I move {self.answer.format(action)}."

    def _why_not(self, state: ParkingState, action: Move) -> str:
        """Return why a move is illegal, worded to follow `vehicle` in an error message."""
        number, direction = action
        letter = ascii_uppercase[number]
        if state.vehicles[number].horizontal != (direction % 2 == 1):
            return f"{letter} only moves {'left and right' if state.vehicles[number].horizontal else 'up and down'}"
        cells = self._lot(state).cells(number, state.offsets[number])
        cell = neighbour(cells[0] if direction in (0, 3) else cells[-1], direction)
        return f"{letter} is blocked at {self.where(cell)}" if self.inside(cell) else f"{letter} cannot leave the lot"

    def _lot(self, state: ParkingState) -> Lot:
        return _lot(self.config.rows, self.config.columns, state.vehicles)


@lru_cache(maxsize=4096)
def _lot(rows: int, columns: int, vehicles: tuple[Vehicle, ...]) -> Lot:
    return Lot(rows, columns, vehicles)


@lru_cache(maxsize=64)
def _planner(rows: int, columns: int, vehicles: tuple[Vehicle, ...]) -> Planner[Offsets, Move]:
    return Planner(_lot(rows, columns, vehicles).solve)


# Lots -----------------------------------------------------------------------------------------------------------------
#
# Parking lots: legal moves of the vehicles, random lots, and shortest solutions.
#
# Cells are numbered row by row, and sets of cells are bit masks. The state of a lot is the offset of each vehicle in
# its row or column. Vehicle 0 must reach the right end of its row.

MAX_LOTS = 1000
"""Maximum number of attempts per lot; each takes 2 to 8 on average, depending on the level."""
MAX_PLACES = 20
"""Maximum number of attempts to place vehicles, as a multiple of the number of vehicles."""
WALK = 40
"""Number of random moves to try from a solved lot, as a multiple of the number of vehicles."""
FORWARDS = (1, 2)
"""Directions that increase a vehicle's offset: right and down."""
HORIZONTAL, LONG = 0.4, 0.45
"""Probabilities that a vehicle is horizontal, and that it is three cells long."""
EVERY = 8
"""Number of attempted moves between the states of a lot that are compared."""
MOST_NODES = 100_000
"""Limit on the number of states in the search for a solution; see `shortest_path`."""
BITS, MAX_SIDE, ALL_CELLS = 3, 8, 2**64 - 1
"""Bits of an offset, longest side of a lot, and the set of all cells of the largest lot."""


@dataclass(frozen=True, slots=True)
class Vehicle:
    """A vehicle of `length` cells; `line` is the index of its row if `horizontal`, else of its column."""

    line: int
    length: Literal[2, 3]
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
        shape = self.vehicles[vehicle]
        along = range(offset, offset + shape.length)
        return [(shape.line, i) if shape.horizontal else (i, shape.line) for i in along]

    def solved(self, offsets: Offsets) -> bool:
        """True if vehicle 0 is at the right end of its row."""
        return offsets[0] == self.columns - self.vehicles[0].length

    def occupied(self, offsets: Offsets) -> int:
        """Set of cells covered by any vehicle."""
        taken = 0
        for masks, offset in zip(self.masks, offsets):
            taken |= masks[offset]
        return taken

    def moves(self, offsets: Offsets) -> tuple[Move, ...]:
        """Return the legal moves."""
        occupied, (all_entered, _) = np.uint64(self.occupied(offsets)), self._crossed
        return tuple(
            move for move, entered in zip(self._moves, all_entered) if not entered[offsets[move[0]]] & occupied
        )

    @cached_property
    def _moves(self) -> list[Move]:
        """Each vehicle's two moves, back and forth."""
        directions = [(3, 1) if vehicle.horizontal else (0, 2) for vehicle in self.vehicles]
        return [(number, direction) for number, pair in enumerate(directions) for direction in pair]

    @cached_property
    def _crossed(self) -> tuple[UInt64, UInt64]:
        """Sets of cells that each move enters from each offset, and that it enters or leaves; shapes (moves, 8).

        A move that leaves the lot enters all cells.
        """
        entered = np.full((len(self._moves), MAX_SIDE), ALL_CELLS, np.uint64)
        changed = np.zeros_like(entered)
        for row, (number, direction) in enumerate(self._moves):
            for offset, (near, far) in enumerate(pairwise(self.masks[number])):
                at, before, after = (offset, near, far) if direction in FORWARDS else (offset + 1, far, near)
                entered[row, at], changed[row, at] = after & ~before, before ^ after
        return entered, changed

    def solve(self, offsets: Offsets) -> Plan[Offsets, Move] | None:
        """Return a shortest solution, or None if none exists or the search exceeds `MOST_NODES`.

        The search is breadth-first as `shortest_path`, and finds the same path, but a layer of nodes at a time, each a
        number of three bits for the offset of each vehicle. As every move can be taken back, a layer can only repeat
        nodes of the layer before the last.
        """
        if self.solved(offsets):
            return ()
        goal = self.columns - self.vehicles[0].length
        shifts = np.array([BITS * number for number, _ in self._moves], np.uint64)
        signs = np.array([1 if direction in FORWARDS else -1 for _, direction in self._moves])
        steps = (signs << shifts.astype(np.int64)).view(np.uint64)
        entered, changed = self._crossed
        nodes = np.array([sum(offset << BITS * number for number, offset in enumerate(offsets))], np.uint64)
        occupied, earlier = np.array([self.occupied(offsets)], np.uint64), np.zeros(0, np.uint64)
        layers: list[tuple[Indices, Indices]] = []
        count = 1
        while len(nodes) and count <= MOST_NODES:
            at = (nodes[:, None] >> shifts & np.uint64(MAX_SIDE - 1)).astype(np.intp)
            parents, moves = np.nonzero(entered[np.arange(len(shifts)), at] & occupied[:, None] == 0)
            reached = nodes[parents] + steps[moves]
            new = np.flatnonzero(~np.isin(reached, earlier))
            new = new[np.sort(np.unique(reached[new], return_index=True)[1])]  # the first move to each node
            parents, moves, earlier = parents[new], moves[new], nodes
            layers.append((parents, moves))
            nodes, occupied = reached[new], occupied[parents] ^ changed[moves, at[parents, moves]]
            count += len(nodes)
            if (solved := np.flatnonzero(nodes & np.uint64(MAX_SIDE - 1) == goal)).size:
                return self._path(offsets, layers, int(solved[0]))
        return None

    def _path(self, offsets: Offsets, layers: list[tuple[Indices, Indices]], node: int) -> Plan[Offsets, Move]:
        """Return the path to a node of the last layer; a layer has the parents of its nodes and the moves to them."""
        path: list[Move] = []
        for parents, moves in reversed(layers):
            path.append(self._moves[moves[node]])
            node = int(parents[node])
        plan = []
        for move in reversed(path):
            plan.append((offsets, move))
            offsets = moved(offsets, move)
        return plan


def moved(offsets: Offsets, move: Move) -> Offsets:
    """Return the offsets after a move."""
    number, direction = move
    return (*offsets[:number], offsets[number] + (1 if direction in FORWARDS else -1), *offsets[number + 1 :])


def make_lot(rows: int, columns: int, vehicles: int, lots: int, rng: np.random.Generator) -> tuple[Lot, Offsets]:
    """Make `lots` random lots, by random moves from solved lots; return the most blocked one and its offsets."""

    def attempt() -> tuple[int, Lot, Offsets] | None:
        if (placed := _place(rows, columns, vehicles, rng)) is None:
            return None
        lot, offsets = placed
        value, offsets = max(_walk(lot, offsets, rng), key=lambda entry: entry[0])
        return (value, lot, offsets) if value else None

    what = f"{rows} x {columns} lot with {vehicles} vehicles"
    _, lot, offsets = max((retry(attempt, MAX_LOTS, what) for _ in range(lots)), key=lambda entry: entry[0])
    return lot, offsets


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
        vehicle = Vehicle(int(line * (rows if horizontal else columns)), 3 if long < LONG else 2, horizontal)
        if horizontal and vehicle.line == first.line:
            continue
        masks = masks_of(rows, columns, vehicle)
        at = int(offset * len(masks))
        if not masks[at] & taken:
            taken |= masks[at]
            placed.append(vehicle)
            offsets.append(at)
    return None


@lru_cache(maxsize=4096)
def masks_of(rows: int, columns: int, vehicle: Vehicle) -> tuple[int, ...]:
    """Return the set of cells that a vehicle covers at each offset."""
    span, step, start = (columns, 1, vehicle.line * columns) if vehicle.horizontal else (rows, columns, vehicle.line)
    first = sum(1 << start + i * step for i in range(vehicle.length))
    return tuple(first << offset * step for offset in range(span - vehicle.length + 1))
