"""Parking: move vehicles along their rows and columns until the red car can leave."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from string import ascii_uppercase
from typing import Any

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.core.answer_text import unreadable, word_answer
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Step, is_int
from vlmgym.sandbox.core.named_actions import DIRECTIONS, neighbour
from vlmgym.sandbox.drawing.board import Cells
from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.palette import blend
from vlmgym.sandbox.games.parking.lot import Lot, Move, Offsets, Vehicle, make_lot
from vlmgym.sandbox.games.search import Planner

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
BLACK: Colour = (0, 0, 0)
GROUND: Colour = (84, 88, 98)
EXIT: Colour = (250, 206, 60)

PROMPT_V1 = """\
The image shows a parking lot with {rows} rows and {columns} columns and vehicles marked with letters. Rows are \
numbered from {origin} at the top and columns from {origin} at the left. Each turn, one vehicle moves one cell along \
its length: those in a row left or right, those in a column up or down. Vehicles cannot leave the lot or pass through \
each other. Bring the red car A to the right end of its row (yellow stripes).
Actions: the letter of a vehicle and up, right, down or left, for example B up.
{form}"""

_PERCEPTION = "the lot, one line per row, cells separated by commas, each the letter of the vehicle, or empty"
_ANSWER = re.compile(r"([A-Z])[\s,:]+(up|right|down|left)", re.IGNORECASE | re.ASCII)


class ParkingConfig(BoardConfig):
    """Configuration of the parking lot."""

    rows: int = config_field("reasoning", [4, 5, 6, 6, 6], "Rows of the lot.", ge=4, le=8)
    columns: int = config_field("reasoning", [4, 5, 6, 6, 6], "Columns of the lot.", ge=4, le=8)
    vehicles: int = config_field("reasoning", [3, 5, 8, 9, 10], "Number of vehicles, red car included.", ge=2, le=14)
    lots: int = config_field(
        "reasoning", [1, 3, 4, 12, 50], "Number of random lots to generate; the most blocked one is used.", ge=1, le=50
    )

    def model_post_init(self, context: object) -> None:
        if self.vehicles > (most := self.rows * self.columns * 3 // 8):
            raise ValueError(
                f"{self.vehicles} vehicles do not fit on {self.rows} x {self.columns} cells; at most {most} do"
            )


@dataclass(frozen=True, slots=True)
class ParkingState:
    """Vehicles in letter order, red car first, and their offsets from the left or top, in cells."""

    vehicles: tuple[Vehicle, ...]
    offsets: Offsets
    variation_seed: int = 0


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
    skills = ("planning", "search")
    joined = True
    Config = ParkingConfig
    State = ParkingState
    prompt_template = PROMPT_V1

    @cached_property
    def action_space(self) -> spaces.Space[Any]:
        """Vehicle number and direction."""
        return spaces.MultiDiscrete([self.config.vehicles, 4])

    def start(self, rng: np.random.Generator) -> ParkingState:
        c = self.config
        lot, offsets = make_lot(c.rows, c.columns, c.vehicles, c.lots, rng)
        return ParkingState(lot.vehicles, offsets, int(rng.integers(2**32)))

    def legal_actions(self, state: ParkingState) -> tuple[Move, ...]:
        lot = self._lot(state)
        return () if lot.solved(state.offsets) else tuple([move for move, _ in lot.moves(state.offsets)])

    def step(self, state: ParkingState, action: Move, rng: np.random.Generator) -> Step[ParkingState]:
        c = self.config
        fits = isinstance(action, tuple) and len(action) == 2 and all(map(is_int, action))
        if not (fits and 0 <= action[0] < c.vehicles and 0 <= action[1] < 4):
            raise IllegalAction(
                f"{action!r} is not an action: a vehicle, 0 to {c.vehicles - 1}, and a direction, 0 to 3"
            )
        lot = self._lot(state)
        self.check_running(state)
        offsets = dict(lot.moves(state.offsets)).get(action)
        if offsets is None:
            raise IllegalAction(f"vehicle {self._why_not(state, action)}")
        after = ParkingState(state.vehicles, offsets, state.variation_seed)
        solved = lot.solved(offsets)
        return Step(after, float(solved), solved)

    def ended(self, state: ParkingState) -> str | None:
        return "the red car is at the exit" if self._lot(state).solved(state.offsets) else None

    def best_action(self, state: ParkingState) -> Move | None:
        """First move of a shortest solution; None if solved, unsolvable, or the search exceeds 100,000 states."""
        return _planner(self.config.rows, self.config.columns, state.vehicles).move(state.offsets)

    def metrics(self, state: ParkingState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        left = self.config.columns - state.vehicles[0].length - state.offsets[0]
        return {"solved": float(left == 0), "cells to the exit": float(left)}

    def cells(self, state: ParkingState) -> Cells:
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

    def paint_cell(self, canvas: Canvas, cell: Hashable, angle: float) -> None:
        assert isinstance(cell, tuple)
        letter, joins, is_exit = cell
        side = canvas.width
        canvas.rectangle(0, 0, side, side, blend(GROUND, BLACK, 0.2))
        canvas.rectangle(1, 1, side - 2, side - 2, self.tint(GROUND))
        for i in range(4 if is_exit else 0):
            canvas.rectangle(side * 0.9, side * (0.02 + 0.25 * i), side * 0.1, side * 0.14, self.tint(EXIT))
        if letter == "empty":
            return
        colour = self.tint(RED if letter == "A" else OTHERS[ascii_uppercase.index(letter) % len(OTHERS)])
        edge, inner = side * 0.09, side * 0.13
        for inset, fill in ((edge, blend(colour, BLACK, 0.35)), (inner, colour)):
            left, top = (-side if "l" in joins else inset), (-side if "t" in joins else inset)
            right, bottom = (2 * side if "r" in joins else side - inset), (2 * side if "b" in joins else side - inset)
            canvas.rectangle(left, top, right - left, bottom - top, fill, radius=side * 0.2)
        canvas.text(letter, side / 2, side / 2, side * 0.32, self.tint(INK), angle=angle)

    def cell_words(self, cell: Hashable) -> str:
        assert isinstance(cell, tuple)
        return str(cell[0])

    def prompt(self, state: ParkingState) -> str:
        return self.fill_prompt(_PERCEPTION, "letter and direction")

    def parse_answer(self, text: str) -> Move:
        """Parse a letter and a direction: `B up`."""
        match = _ANSWER.fullmatch(text.strip())
        if match is None or (number := ascii_uppercase.index(match[1].upper())) >= self.config.vehicles:
            last = ascii_uppercase[self.config.vehicles - 1]
            raise unreadable(text, f"a letter from A to {last} and up, right, down or left")
        return number, DIRECTIONS.index(match[2].lower())

    def normalise_answer(self, text: str) -> str:
        """Strip markup, and a leading `move`, `vehicle`, `car` or `truck`."""
        return word_answer(word_answer(text, ("move",)), ("vehicle", "car", "truck"))

    def format(self, action: Move) -> str:
        """Format a move: `B up`."""
        return f"{ascii_uppercase[action[0]]} {DIRECTIONS[action[1]]}"

    def explain(self, state: ParkingState, action: Move) -> str:
        """State which vehicles are in the red car's way."""
        row, lot = state.vehicles[0].line, self._lot(state)
        end = lot.cells(0, state.offsets[0])[-1][1]
        names = [str(cell[0]) for cell in self.cells(state)[row][end + 1 :]]  # type: ignore[index]
        blocking = [name for name in names if name != "empty"]
        ways = f"in its way: {', '.join(blocking) or 'nothing'}"
        where = f"The red car A in row {row + self.config.origin} ends in column {end + self.config.origin}; {ways}."
        return f"{where} I move {self.format(action)}."

    def check_state(self, state: ParkingState) -> None:
        c = self.config
        invalid = StateError(f"not {c.vehicles} vehicles on a {c.rows} x {c.columns} lot")
        if not len(state.vehicles) == len(state.offsets) == c.vehicles or not state.vehicles[0].horizontal:
            raise invalid
        taken = 0
        for vehicle, offset in zip(state.vehicles, state.offsets):
            lines, span = (c.rows, c.columns) if vehicle.horizontal else (c.columns, c.rows)
            if not (0 <= vehicle.line < lines and vehicle.length in (2, 3) and 0 <= offset <= span - vehicle.length):
                raise invalid
        lot = self._lot(state)
        for masks, offset in zip(lot.masks, state.offsets):
            if masks[offset] & taken:
                raise StateError("two vehicles overlap")
            taken |= masks[offset]

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
