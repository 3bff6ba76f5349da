"""Falling blocks: choose the column and rotation of each piece; full rows vanish."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.base import Answer, plain, unreadable
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step
from vlmgym.sandbox.drawing.canvas import COLOURS, THEMES, Canvas, blend
from vlmgym.sandbox.drawing.shapes import COLOUR_NAMES

Placement = tuple[int, int]
"""Column of the left edge, zero-based, and number of clockwise quarter turns."""
ABOVE = " "
"""Character for a free cell above the well."""
MARKS: Mapping[str, str] = {str(number): colour for number, colour in enumerate(COLOUR_NAMES)}
DEGREES = (0, 90, 180, 270)

PROMPT_V1 = """\
The image shows a well into which blocks fall, with {columns} columns, numbered from {origin} at the left. The top \
{above} rows, above the well, show the next piece. Choose its rotation, 0, 90, 180 or 270 degrees clockwise from the \
orientation shown, and the column of its left edge after the rotation. It falls straight down until it rests on the \
bottom or on other blocks. A row of the well that is full vanishes, scores 1, and the rows above it move down. The \
game ends when the next piece does not fit into the well.
Actions: {actions}.
{form}"""

_PERCEPTION = (
    "the image, one line per row, cells separated by commas, each the colour of its block ({colours}) or empty"
)
_SPELLING = re.compile(
    r"\(?(?:(?:column|col)\s*[:=]?\s*)?([0-9]{1,4})(?:\s*[,;]\s*|\s+)"
    r"(?:(?:rotation|rotate|rotated)\s*(?:[:=]|by)?\s*)?([0-9]{1,4})\s*(?:degrees|\u00b0)?\)?",
    re.IGNORECASE | re.ASCII,
)


class FallingBlocksConfig(BoardConfig):
    """Configuration of falling blocks."""

    rows: int = config_field("reasoning", 11, "Rows of the board, including those above the well.", ge=6, le=30)
    columns: int = config_field("reasoning", [5, 6, 7, 9, 9], "Columns of the well.", ge=5, le=16)
    cells: int = config_field("reasoning", [3, 3, 4, 4, 5], "Number of cells of a piece.", ge=3, le=5)


@dataclass(frozen=True, slots=True)
class FallingBlocksState:
    """A well and the next piece.

    Attributes:
        well: Rows from top to bottom, as strings: a digit for the colour of a block, `.` for a free cell.
        piece: Index of the next piece.
    """

    well: Well
    piece: int
    variation_seed: int = 0


class Placements(Answer[Placement]):
    """A column and a rotation in degrees: `column 2, rotation 90`; also reads `2, 90`."""

    form = "column C, rotation R"

    @cached_property
    def space(self) -> spaces.MultiDiscrete:
        """Column and number of clockwise quarter turns."""
        return spaces.MultiDiscrete([self.config.columns, 4])

    @property
    def sentence(self) -> str:
        """The possible answers, for prompts."""
        return f"a column and a rotation, for example {self.format((2, 1))}"

    def parse(self, text: str) -> Placement:
        text = plain(text)
        match = _SPELLING.fullmatch(text)
        if match is None or int(match[2]) not in DEGREES:
            raise unreadable(text, f"a column and a rotation like {self.format((2, 1))}")
        return int(match[1]) - self.config.origin, int(match[2]) // 90

    def format(self, action: Placement) -> str:
        column, turns = action
        return f"column {column + self.config.origin}, rotation {90 * turns}"


class FallingBlocks(BoardGame[FallingBlocksState, Placement]):
    """Place falling pieces so that rows fill up and vanish.

    Description:
        Each turn places one piece, sampled uniformly from all shapes of `cells` connected cells; rotations of a shape
        count as the same piece, mirror images do not. A piece falls straight down from above the well and cannot be
        moved under other blocks.

    Observation:
        The well as an RGB image; the rows above it show the next piece.

    Action:
        `MultiDiscrete([columns, 4])`: column of the piece's left edge after rotation, from 0, and number of clockwise
        quarter turns. Text answers give the rotation in degrees.

    Reward:
        The number of rows that vanish; 0 for an illegal or unparsable answer.

    Episode end:
        The next piece does not fit into the well. Metrics: rows cleared, pieces placed.

    Oracle:
        Looks one piece ahead: it chooses the placement with the best weighted sum of rows cleared, column heights, free
        cells below blocks, and height differences between adjacent columns.
    """

    name = "fallingblocks"
    statements = re.compile(
        r"Rotated by \d{1,3} degrees, the piece covers columns? \d{1,4}(?: to \d{1,4})?; "
        r"(?:no row vanishes|1 row vanishes|\d rows vanish)\."
    )
    skills = ("planning", "spatial")
    title = "Falling blocks"
    answer = Placements()
    Config = FallingBlocksConfig
    State = FallingBlocksState
    prompt_template = PROMPT_V1
    prediction_form = "the image after the piece has landed, with unchanged rows above the well, in the same form"

    def deal(self, rng: np.random.Generator) -> FallingBlocksState:
        well = (FREE * self.config.columns,) * (self.config.rows - self.above)
        return FallingBlocksState(well, int(rng.integers(len(self.pieces))))

    def legal_actions(self, state: FallingBlocksState) -> tuple[Placement, ...]:
        return tuple(placements(state.well, self.pieces[state.piece]))

    def step(self, state: FallingBlocksState, action: Placement, rng: np.random.Generator) -> Step[FallingBlocksState]:
        landing = self._land(state, self._rotated(state, action), action)
        after = FallingBlocksState(landing.well, int(rng.integers(len(self.pieces))), state.variation_seed)
        return Step(after, float(landing.cleared), {"cleared": landing.cleared})

    def after_move(self, state: FallingBlocksState, action: Placement) -> str:
        """Describe the well with the same piece above it, because the next one is sampled."""
        after = self.step(state, action, np.random.default_rng(0)).state
        return self.describe(replace(after, piece=state.piece))

    def ended(self, state: FallingBlocksState) -> str | None:
        fits = next(placements(state.well, self.pieces[state.piece]), None)
        return "the next piece does not fit" if fits is None else None

    def best_action(self, state: FallingBlocksState) -> Placement | None:
        return best_placement(state.well, self.pieces[state.piece])

    def metrics(self, state: FallingBlocksState, infos: Infos) -> Metrics:
        cleared = [info["cleared"] for info in infos if info]
        return {"rows cleared": float(sum(cleared)), "pieces placed": float(len(cleared))}

    def cells(self, state: FallingBlocksState) -> list[str]:
        """Rows of the image: the next piece, centred, and the well below it."""
        shape, mark = self.pieces[state.piece], self._mark(state.piece)
        left, top = (self.config.columns - width_of(shape)) // 2, self.above - height_of(shape)
        above = [[ABOVE] * self.config.columns for _ in range(self.above)]
        for down, right in shape:
            above[top + down][left + right] = mark
        return [*map("".join, above), *state.well]

    def cell_words(self, cell: str) -> str:
        return MARKS.get(cell, "empty")

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        side, theme = canvas.width, THEMES[self.config.theme]
        if cell == ABOVE:
            canvas.rectangle(0, 0, side, side, theme.board)
        elif cell != FREE:
            colour, edge = self.tint(COLOURS[MARKS[cell]]), side * 0.14
            canvas.rectangle(0, 0, side, side, colour, radius=side * 0.09)
            lighter = blend(colour, theme.tile, 0.22)
            canvas.rectangle(edge, edge, side - 2 * edge, side - 2 * edge, lighter, radius=side * 0.05)

    def prompt(self, state: FallingBlocksState) -> str:
        perception = _PERCEPTION.format(colours=", ".join(COLOUR_NAMES[: len(self.pieces)]))
        return self.fill_prompt(perception, above=self.above)

    def explain(self, state: FallingBlocksState, action: Placement) -> str:
        """State the columns that the piece covers and the rows that vanish."""
        shape = self._rotated(state, action)
        landing = self._land(state, shape, action)
        first, last = action[0] + self.config.origin, action[0] + width_of(shape) - 1 + self.config.origin
        columns = f"column {first}" if first == last else f"columns {first} to {last}"
        vanish = {0: "no row vanishes", 1: "1 row vanishes"}.get(landing.cleared, f"{landing.cleared} rows vanish")
        return f"Rotated by {90 * action[1]} degrees, the piece covers {columns}; {vanish}."

    @cached_property
    def pieces(self) -> tuple[Shape, ...]:
        """All pieces of `config.cells` cells."""
        return pieces(self.config.cells)

    @cached_property
    def above(self) -> int:
        """Number of rows above the well."""
        return max(map(height_of, self.pieces))

    def _mark(self, piece: int) -> str:
        return str(piece % len(COLOUR_NAMES))

    def _land(self, state: FallingBlocksState, shape: Shape, action: Placement) -> Landing:
        """Let the rotated piece fall; raise `IllegalAction` if it does not fit into the well."""
        landing = land(state.well, shape, action[0], self._mark(state.piece))
        if landing is None:
            raise IllegalAction(f"the piece does not fit into the well at {self.answer.format(action)}")
        return landing

    def _rotated(self, state: FallingBlocksState, action: object) -> Shape:
        """Return the next piece, rotated as the action says.

        Raises:
            IllegalAction: `action` is not an action, or the piece would extend beyond the sides of the well.
        """
        column, turns = self.answer.numbers(action, "column and quarter turns")
        if turns not in range(4):
            raise IllegalAction(f"{turns} is not an action: quarter turns are 0 to 3")
        shape = rotation(self.pieces[state.piece], turns)
        if not 0 <= column <= self.config.columns - width_of(shape):
            raise IllegalAction(f"at {self.answer.format((column, turns))} the piece is not within the well")
        return shape


# Pieces ---------------------------------------------------------------------------------------------------------------
#
# Pieces of falling blocks, and the placement that the oracle chooses.
#
# A shape is a sorted tuple of cells (row, column). Rows count from the top; the smallest row and column are 0.

Shape = tuple[tuple[int, int], ...]
Well = tuple[str, ...]
FREE = "."
LINES, HEIGHT, HOLES, BUMPS = 0.76, -0.51, -0.36, -0.18
"""Weights of the oracle, from "Tetris AI - The (Near) Perfect Bot" by Yiyuan Lee (2013): number of rows cleared, sum of
column heights, number of free cells below blocks, and sum of height differences between adjacent columns."""


class Landing(NamedTuple):
    """Result of dropping a piece: the well after full rows have vanished, and the number of rows that vanished."""

    well: Well
    cleared: int


@cache
def pieces(cells: int) -> tuple[Shape, ...]:
    """Return all shapes of `cells` connected cells, each in one orientation only; see `_flat`."""
    grown: set[Shape] = {((0, 0),)}
    for _ in range(cells - 1):
        larger = {
            moved((*shape, (row + down, column + right)))
            for shape in grown
            for row, column in shape
            for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))
            if (row + down, column + right) not in shape
        }
        grown = {min(rotation(shape, turns) for turns in range(4)) for shape in larger}
    return tuple(sorted(map(_flat, grown)))


@cache
def rotation(shape: Shape, turns: int) -> Shape:
    """Rotate a shape clockwise by a number of quarter turns."""
    for _ in range(turns):
        shape = tuple((column, -row) for row, column in shape)
    return moved(shape)


def moved(shape: Sequence[tuple[int, int]]) -> Shape:
    """Sort cells, and move them so that the smallest row and column are 0."""
    top, left = min(row for row, _ in shape), min(column for _, column in shape)
    return tuple(sorted((row - top, column - left) for row, column in shape))


def _flat(shape: Shape) -> Shape:
    """Rotate a shape to its smallest height; on a tie, to the lowest centre of mass."""
    return min(
        (rotation(shape, turns) for turns in range(4)),
        key=lambda turned: (height_of(turned), -sum(row for row, _ in turned), turned),
    )


def height_of(shape: Shape) -> int:
    """Number of rows of a shape."""
    return 1 + max(row for row, _ in shape)


def width_of(shape: Shape) -> int:
    """Number of columns of a shape."""
    return 1 + max(column for _, column in shape)


def heights_of(well: Well) -> list[int]:
    """Height of the stack in each column."""
    return [len(column.lstrip(FREE)) for column in map("".join, zip(*well))]


def resting_row(well: Well, heights: Sequence[int], shape: Shape, column: int) -> int:
    """Row where a shape's top lands if dropped with its left edge in `column`; negative if the shape does not fit."""
    return min(len(well) - heights[column + right] - 1 - down for down, right in shape)


def land(well: Well, shape: Shape, column: int, mark: str) -> Landing | None:
    """Drop a shape into the well; return None if it does not fit."""
    top = resting_row(well, heights_of(well), shape, column)
    if top < 0:
        return None
    rows = list(map(list, well))
    for down, right in shape:
        rows[top + down][column + right] = mark
    left = ["".join(row) for row in rows if FREE in row]
    cleared = len(rows) - len(left)
    return Landing((FREE * len(well[0]),) * cleared + tuple(left), cleared)


def placements(well: Well, shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield each (column, quarter turns) at which a shape fits into the well."""
    heights, width = heights_of(well), len(well[0])
    turned = [rotation(shape, turns) for turns in range(4)]
    for column in range(width):
        for turns, turned_shape in enumerate(turned):
            if column + width_of(turned_shape) <= width and resting_row(well, heights, turned_shape, column) >= 0:
                yield column, turns


def best_placement(well: Well, shape: Shape) -> tuple[int, int] | None:
    """Return the placement with the highest value, or None if the shape does not fit."""

    def value(placement: tuple[int, int]) -> float:
        column, turns = placement
        landing = land(well, rotation(shape, turns), column, "#")
        assert landing is not None
        heights = heights_of(landing.well)
        free = sum(row.count(FREE) for row in landing.well)
        holes = sum(heights) - (len(well) * len(well[0]) - free)
        bumps = sum(abs(height - next_height) for height, next_height in pairwise(heights))
        return LINES * landing.cleared + HEIGHT * sum(heights) + HOLES * holes + BUMPS * bumps

    return max(placements(well, shape), key=value, default=None)
