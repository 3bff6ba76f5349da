"""Peg solitaire: jump over pegs to remove them until one is left."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import NonNegativeInt

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import CELL, Cells, Pair
from vlmgym.sandbox.answers.choice import STEPS
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, pick
from vlmgym.sandbox.core.search import CACHED
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import BLACK, COLOURS, WHITE, Canvas, Colour, Theme, blend

WOOD: Colour = (150, 96, 54)
HOLE: Colour = (74, 44, 24)
GLASS = COLOURS["green"]

PROMPT_V1 = """\
The image shows a wooden board with {rows} rows and {columns} columns of holes, some of which hold a peg. {numbering} \
A move jumps with a peg over a peg next to it, up, right, down or left, into the empty hole right behind, two cells \
away; the peg in between is removed. Jump until a single peg is left. The game ends when no jump is possible; each \
peg removed scores 1/{removable}.
Actions: {actions}.
{form}"""


class PegsConfig(BoardConfig):
    """Configuration of peg solitaire."""

    rows: int = config_field("reasoning", [4, 4, 4, 5, 6], "Rows of holes.", ge=3, le=6)
    columns: int = config_field("reasoning", [4, 4, 5, 5, 6], "Columns of holes.", ge=3, le=6)
    pegs: int = config_field("reasoning", [4, 5, 7, 9, 12], "Number of pegs at first.", ge=4, le=12)

    def model_post_init(self, context: object) -> None:
        if self.pegs > (most := self.cell_count // 2):
            raise ValueError(f"at most {most} pegs, half of the holes, can be placed, got {self.pegs}")


@dataclass(frozen=True, slots=True)
class PegsState:
    """Pegs as a bit mask of cells, row by row."""

    pegs: NonNegativeInt
    variation_seed: int = 0


class Pegs(BoardGame[PegsState, Pair]):
    """Jump over pegs to remove them until one is left.

    Description:
        Peg solitaire on a rectangular board. Boards are made by jumping backwards from a single peg, so they can always
        be solved, but not after every first jump. The score shows only at the end that a jump was wrong.

    Observation:
        The board as an RGB image.

    Action:
        `MultiDiscrete([rows, columns, rows, columns])`: row and column of the peg that jumps, and of the hole where it
        lands, from 0.

    Reward:
        1 / (`pegs` - 1) for each jump, so a solved board scores 1; 0 for an illegal or unparsable answer.

    Episode end:
        One peg is left, or no jump is possible. Metrics: solved, pegs left.

    Oracle:
        Leaves as few pegs as possible, by a full search.
    """

    name = "pegs"
    title = "Peg solitaire"
    statements = re.compile(
        r"\d{1,4} pegs are left, and (?:1 jump is|\d{1,4} jumps are) possible\."
        rf"|The peg at {CELL} jumps over the peg at {CELL}, which is removed, and lands at {CELL}\."
    )
    skills = ("planning", "search")
    joined = True
    optimal_oracle = True
    answer = Cells(2, "the peg that jumps and of the hole where it lands", verbs=("jump", "move"), example=(0, 0, 0, 2))
    Config = PegsConfig
    State = PegsState
    prompt_template = PROMPT_V1
    words: ClassVar = {"1": "peg", "0": "empty"}
    perception_form = "the board, one line per row, peg or empty for each hole, separated by commas"
    themes: ClassVar = {
        "light": Theme((240, 232, 216), (110, 66, 34), WOOD, WOOD, (110, 84, 60)),
        "dark": Theme((28, 22, 20), (60, 36, 22), blend(WOOD, BLACK, 0.35), WOOD, (190, 160, 130)),
    }

    def deal(self, rng: np.random.Generator) -> PegsState | None:
        """Jump backwards from a single peg at random; None if that gets stuck, or if no first jump is wrong."""
        c = self.config
        pegs = 1 << int(rng.integers(c.cell_count))
        for _ in range(c.pegs - 1):
            back = [jump for jump in self._jumps if (pegs & jump.all) == jump.to]
            if not back:
                return None
            pegs ^= pick(rng, back).all
        first = [jump for jump in self._jumps if (pegs & jump.all) == jump.all - jump.to]
        return PegsState(pegs) if any(self._search(pegs ^ jump.all)[0] > 1 for jump in first) else None

    def legal_actions(self, state: PegsState) -> tuple[Pair, ...]:
        return tuple([jump.action for jump in self._jumps if (state.pegs & jump.all) == jump.all - jump.to])

    def step(self, state: PegsState, action: Pair, rng: np.random.Generator) -> Step[PegsState]:
        (row, column), (to_row, to_column) = start, end = self.answer.cells(action)
        over = (row + to_row) // 2, (column + to_column) // 2
        if not self._has_peg(state, start):
            raise IllegalAction(f"there is no peg at {self.where(start)}")
        if sorted((abs(row - to_row), abs(column - to_column))) != [0, 2]:
            raise IllegalAction(f"{self.where(end)} is not two cells up, right, down or left of {self.where(start)}")
        if not self._has_peg(state, over):
            raise IllegalAction(f"there is no peg to jump over at {self.where(over)}")
        if self._has_peg(state, end):
            raise IllegalAction(f"there is already a peg at {self.where(end)}")
        changed = sum(1 << self.index_of(cell) for cell in (start, over, end))
        return Step(PegsState(state.pegs ^ changed, state.variation_seed), 1 / (self.config.pegs - 1))

    def ended(self, state: PegsState) -> str | None:
        if self.legal_actions(state):
            return None
        return "one peg is left" if state.pegs.bit_count() == 1 else "no jump is possible"

    def best_action(self, state: PegsState) -> Pair | None:
        jump = self._search(state.pegs)[1]
        return None if jump is None else jump.action

    def metrics(self, state: PegsState, infos: Infos) -> Metrics:
        left = state.pegs.bit_count()
        return {"solved": float(left == 1), "pegs left": float(left)}

    def cells(self, state: PegsState) -> Grid:
        return self.in_rows(f"{state.pegs:0{self.config.cell_count}b}"[::-1])

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        side, hole = canvas.width, self.tint(blend(HOLE, BLACK, 0.2))
        middle = side / 2
        canvas.circle(middle, middle, side * 0.3, hole)
        canvas.circle(middle, middle + side * 0.03, side * 0.26, self.tint(HOLE))
        if cell == "1":
            glass = self.tint(GLASS)
            canvas.circle(middle, middle, side * 0.34, blend(glass, BLACK, 0.45))
            canvas.circle(middle, middle, side * 0.32, glass)
            canvas.circle(middle - side * 0.04, middle - side * 0.05, side * 0.22, blend(glass, WHITE, 0.2))
            canvas.circle(middle - side * 0.1, middle - side * 0.12, side * 0.08, blend(glass, WHITE, 0.75))

    def prompt(self, state: PegsState) -> str:
        return self.fill_prompt(removable=self.config.pegs - 1)

    def explain(self, state: PegsState, action: Pair) -> str:
        """State the number of possible jumps and what this one does."""
        start, end = action[:2], action[2:]
        over = self.where(((start[0] + end[0]) // 2, (start[1] + end[1]) // 2))
        count = len(self.legal_actions(state))
        jumps = "1 jump is" if count == 1 else f"{count} jumps are"
        return (
            f"{state.pegs.bit_count()} pegs are left, and {jumps} possible. The peg at {self.where(start)} jumps over "
            f"the peg at {over}, which is removed, and lands at {self.where(end)}."
        )

    def _has_peg(self, state: PegsState, cell: tuple[int, int]) -> bool:
        return bool(state.pegs >> self.index_of(cell) & 1)

    @property
    def _jumps(self) -> tuple[Jump, ...]:
        return jumps(self.config.rows, self.config.columns)

    def _search(self, pegs: int) -> tuple[int, Jump | None]:
        return fewest_left(pegs, self.config.rows, self.config.columns)


# Search ---------------------------------------------------------------------------------------------------------------


class Jump(NamedTuple):
    """A jump: the cells of the peg that jumps, of the one that it removes and of the hole, as bit masks."""

    action: Pair
    all: int
    """All three cells."""
    to: int
    """The hole."""


@cache
def jumps(rows: int, columns: int) -> tuple[Jump, ...]:
    """List all jumps on a board."""
    listed = []
    for row in range(rows):
        for column in range(columns):
            for down, across in STEPS:
                to_row, to_column = row + 2 * down, column + 2 * across
                if 0 <= to_row < rows and 0 <= to_column < columns:
                    cells = [(row + i * down) * columns + column + i * across for i in range(3)]
                    masks = [1 << cell for cell in cells]
                    listed.append(Jump((row, column, to_row, to_column), sum(masks), masks[2]))
    return tuple(listed)


@lru_cache(maxsize=CACHED)
def fewest_left(pegs: int, rows: int, columns: int) -> tuple[int, Jump | None]:
    """Return the smallest number of pegs that can be left, and the first jump that leads there; None if none helps."""
    left, best = pegs.bit_count(), None
    for jump in jumps(rows, columns):
        if (pegs & jump.all) == jump.all - jump.to:
            reached = fewest_left(pegs ^ jump.all, rows, columns)[0]
            if reached < left:
                left, best = reached, jump
                if left == 1:
                    break
    return left, best
