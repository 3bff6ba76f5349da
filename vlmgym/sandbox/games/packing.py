"""Packing: fit pieces made of squares into a board until it is full."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from string import ascii_lowercase, ascii_uppercase
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.base import Answer, plain, unreadable
from vlmgym.sandbox.answers.cells import format_cells
from vlmgym.sandbox.answers.choice import neighbours
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray, Infos, Metrics, Step
from vlmgym.sandbox.drawing.board import BoardGeometry, BoardPainter
from vlmgym.sandbox.drawing.canvas import BLACK, WHITE, Canvas, Colour, Theme, blend
from vlmgym.sandbox.games.fallingblocks import Shape, height_of, moved, rotation, width_of

Place = tuple[int, ...]
"""Row and column of the upper left corner of the rectangle around a piece; if pieces may be turned, also the number of
clockwise quarter turns."""
Placing = tuple[int, ...]
"""An action: the number of a piece, and its place."""

EMPTY = "empty"
WIDEST = 3
"""Maximum height and width of a piece in cells."""
SLOTS = 5
"""Number of pieces side by side in the tray."""
FELT: Colour = (44, 62, 80)
TRAY: Colour = (62, 84, 104)
COLOURS: Sequence[Colour] = (
    (232, 76, 61), (52, 152, 219), (241, 196, 15), (46, 174, 96), (155, 89, 182),
    (230, 126, 34), (26, 188, 180), (233, 120, 170), (149, 196, 66), (140, 110, 90),
)  # fmt: skip
_PLACING = re.compile(
    r"(?:piece )?([a-z])(?:,? (?:turned |rotated )?(?:by )?(0|90|180|270)(?:°| degrees)?)?,? ?(?:at |to |on )?"
    r"(?:\(([0-9]{1,4}), ?([0-9]{1,4})\)|([0-9]{1,4}), ?([0-9]{1,4}))"
)

PROMPT_V1 = """\
The image shows a board with {rows} rows and {columns} columns of cells, and below it a tray with pieces, each with a \
letter. {numbering} A move places a piece on the board{turn}; the place is that of the upper left corner of the \
rectangle around the piece. Pieces that it would overlap go back to the tray, and a piece on the board may be placed \
again. All pieces together cover the board exactly. Cover it; each covered cell scores 1/{cell_count}.
Actions: {actions}.
{form}"""

_TURN = ", turned clockwise by 0, 90, 180 or 270 degrees relative to the tray"
_PERCEPTION = """\
the board, one line per row, comma-separated, the letter of the piece on each cell or empty; then each piece in the \
tray on a line: its letter and its rows from top to bottom, comma-separated, with x for a square and . for a gap, for \
example B, xx., .xx"""


class PackingConfig(BoardConfig):
    """Configuration of packing."""

    rows: int = config_field("reasoning", [3, 3, 4, 5, 6], "Rows of cells.", ge=2, le=6)
    columns: int = config_field("reasoning", [3, 4, 5, 6, 6], "Columns of cells.", ge=3, le=6)
    pieces: int = config_field("reasoning", [3, 4, 5, 7, 8], "Number of pieces.", ge=2, le=10)
    turns: bool = config_field("reasoning", [False, False, False, True, True], "Pieces may and must be turned.")

    def model_post_init(self, context: object) -> None:
        if not 2 <= self.cell_count / self.pieces <= 5:
            raise ValueError(
                f"pieces must have 2 to 5 squares on average, got {self.pieces} pieces for {self.rows} x {self.columns}"
            )


@dataclass(frozen=True, slots=True)
class PackingState:
    """Pieces as they lie in the tray, and the place of each piece on the board; None in the tray."""

    pieces: tuple[Shape, ...]
    places: tuple[Place | None, ...]
    variation_seed: int = 0


class PlacePiece(Answer[Placing]):
    """The letter of a piece, a turn in degrees if pieces may be turned, and a place: `B 90 (0, 1)`."""

    @property
    def form(self) -> str:  # type: ignore[override]
        """`letter (row, column)`, with degrees if pieces may be turned."""
        return "letter degrees (row, column)" if self.config.turns else "letter (row, column)"

    @property
    def sentence(self) -> str:
        """The form, with an example."""
        example = (1, 0, 1, 1) if self.config.turns else (1, 0, 1)
        return f"{self.form}, for example {self.format(example)}"

    @cached_property
    def space(self) -> spaces.MultiDiscrete:
        """Number of the piece, row, column and, if pieces may be turned, number of quarter turns."""
        c = self.config
        return spaces.MultiDiscrete([c.pieces, c.rows, c.columns, *([4] if c.turns else [])])

    def parse(self, text: str) -> Placing:
        words = " ".join(plain(text, brackets=True).lower().removeprefix("place ").split())
        match = _PLACING.fullmatch(words)
        if match is None or (match[2] and not self.config.turns):
            raise unreadable(text, f"a piece and its place like {self.format((0,) * len(self.ranges))}")
        if (piece := ascii_lowercase.index(match[1])) >= self.config.pieces:
            raise unreadable(text, f"a piece from A to {ascii_uppercase[self.config.pieces - 1]} and its place")
        row, column = (int(number) - self.config.origin for number in match.groups()[2:] if number)
        return (piece, row, column, int(match[2] or 0) // 90) if self.config.turns else (piece, row, column)

    def format(self, action: Placing) -> str:
        piece, row, column, *turns = action
        degrees = [str(90 * turn) for turn in turns]
        return " ".join([ascii_uppercase[piece], *degrees, format_cells((row, column), self.config.origin)])


class Packing(BoardGame[PackingState, Placing]):
    """Fit pieces made of squares into a board until it is full.

    Description:
        Boards are cut at random into pieces of nearly equal size, at most 3 cells wide and high, so they can always be
        filled, often in several ways. No placement is final: pieces that a new one overlaps go back to the tray.

    Observation:
        The board, and the tray below it, as an RGB image.

    Action:
        `MultiDiscrete([pieces, rows, columns])`: number of a piece, and row and column of the upper left corner of the
        rectangle around it, from 0; with `turns`, also the number of clockwise quarter turns. A piece may not be placed
        where it is already.

    Reward:
        Change in the fraction of covered cells, so a full board scores 1; 0 for an illegal or unparsable answer.

    Episode end:
        The board is full. Metrics: solved, fraction of covered cells.

    Oracle:
        Completes the pieces on the board if that is possible, and otherwise works towards a solution of its own.
    """

    name = "packing"
    skills = ("spatial", "planning")
    joined = True
    optimal_oracle = True
    answer = PlacePiece()
    attempts = 20_000
    Config = PackingConfig
    State = PackingState
    prompt_template = PROMPT_V1
    perception_form = _PERCEPTION
    themes: ClassVar = {
        "light": Theme(FELT, (28, 40, 52), TRAY, TRAY, (190, 204, 216)),
        "dark": Theme((20, 26, 34), (10, 14, 18), (34, 44, 56), TRAY, (170, 184, 196)),
    }

    def deal(self, rng: np.random.Generator) -> PackingState | None:
        c = self.config
        if (pieces := cut(c.rows, c.columns, c.pieces, rng)) is None:
            return None
        if c.turns:
            turns = rng.integers(4, size=c.pieces).tolist()
            pieces = [rotation(piece, turn) for piece, turn in zip(pieces, turns)]
        return PackingState(tuple(pieces), (None,) * c.pieces)

    def legal_actions(self, state: PackingState) -> tuple[Placing, ...]:
        if self.ended(state):
            return ()
        return tuple([action for action in self._options(state) if state.places[action[0]] != action[1:]])

    def step(self, state: PackingState, action: Placing, rng: np.random.Generator) -> Step[PackingState]:
        piece, *place = self.answer.numbers(action, "piece, row, column" + ", quarter turns" * self.config.turns)
        if not all(map(range.__contains__, self.answer.ranges, (piece, *place))):
            raise IllegalAction(f"{action!r} is not an action: see the action space")
        covered = self._options(state).get((piece, *place))
        name, where = ascii_uppercase[piece], self.where((place[0], place[1]))
        if covered is None:
            raise IllegalAction(f"piece {name} at {where} would not be inside the board")
        if state.places[piece] == tuple(place):
            raise IllegalAction(f"piece {name} is already at {where}")
        places = [None if mask & covered else at for at, mask in zip(state.places, self._masks(state))]
        places[piece] = tuple(place)
        after = replace(state, places=tuple(places))
        return Step(after, self._covered(after) - self._covered(state))

    def ended(self, state: PackingState) -> str | None:
        return None if None in state.places else "the board is full"

    def best_action(self, state: PackingState) -> Placing | None:
        """Place the first piece, by the place in its solution, that is not where the solution has it."""
        if self.ended(state):
            return None
        solution = self._solve(state.pieces, state.places) or self._solve(state.pieces, (None,) * len(state.pieces))
        wrong = [action for action in solution or () if state.places[action[0]] != action[1:]]
        return min(wrong, key=lambda action: action[1:], default=None)

    def metrics(self, state: PackingState, infos: Infos) -> Metrics:
        return {"solved": float(None not in state.places), "covered": self._covered(state)}

    def cells(self, state: PackingState) -> list[list[Any]]:
        """Number of the piece on each cell, and the sides on which it goes on, as a bit mask; or `EMPTY`."""
        grid: list[list[Any]] = [[EMPTY] * self.config.columns for _ in range(self.config.rows)]
        for number, (shape, place) in enumerate(zip(state.pieces, state.places)):
            if place is not None:
                row, column, *turns = place
                _lay(grid, number, rotation(shape, sum(turns)), row, column)
        return grid

    def describe(self, state: PackingState) -> str:
        """Board, and shapes in the tray."""
        lines = [super().describe(state)]
        for number, (shape, place) in enumerate(zip(state.pieces, state.places)):
            if place is None:
                rows = (
                    "".join("x" if (row, column) in shape else "." for column in range(width_of(shape)))
                    for row in range(height_of(shape))
                )
                lines.append(", ".join([ascii_uppercase[number], *rows]))
        return "\n".join(lines)

    def cell_words(self, cell: Any) -> str:
        return EMPTY if cell == EMPTY else ascii_uppercase[cell[0]]

    def prompt(self, state: PackingState) -> str:
        return self.fill_prompt(turn=_TURN if self.config.turns else "")

    def explain(self, state: PackingState, action: Placing) -> str:
        """State how many cells are free, and which pieces go back to the tray."""
        mask = self._options(state)[action]
        free = round((1 - self._covered(state)) * self.config.cell_count)
        others = [ascii_uppercase[i] for i, other in enumerate(self._masks(state)) if other & mask and i != action[0]]
        back = f" Back to the tray: {', '.join(others)}." if others else ""
        return f"{free} cells are free. I place {self.answer.format(action)}.{back}"

    def _options(self, state: PackingState) -> Mapping[Placing, int]:
        return options(self.config.rows, self.config.columns, state.pieces, self.config.turns)

    def _masks(self, state: PackingState) -> list[int]:
        """Set of cells that each piece covers, as a bit mask."""
        known = self._options(state)
        return [0 if place is None else known.get((i, *place), 0) for i, place in enumerate(state.places)]

    def _covered(self, state: PackingState) -> float:
        cells: int = self.config.cell_count
        return sum(self._masks(state)).bit_count() / cells

    def _solve(self, pieces: tuple[Shape, ...], places: tuple[Place | None, ...]) -> tuple[Placing, ...] | None:
        c = self.config
        return solve(c.rows, c.columns, pieces, c.turns, places)

    # Images ---------------------------------------------------------------------------------------------------------

    def draw_into(self, state: PackingState, out: Sequence[ImageArray], shown: PackingState | None = None) -> None:
        grid, tray, seed = self.cells(state), self._tray(state), state.variation_seed
        if shown is None or shown.variation_seed != seed:
            self._tray_painter.paint(tray, seed, out[0])
            below = self.config.size - self._tray_height
            out[0][:below] = self.painter.paint(grid, seed)[:below]
        else:
            self._tray_painter.paint(tray, seed, out[0], self._tray(shown))
            self.painter.paint(grid, seed, out[0], self.cells(shown))

    @cached_property
    def painter(self) -> BoardPainter:
        """Sprites and geometry of the board, which is in the middle of the room above the tray."""
        c = self.config
        side = c.size - self._tray_height
        geometry = BoardGeometry.of(side, c.rows, c.columns, c.coordinates, self.joined)
        geometry = replace(geometry, left=geometry.left + (c.size - side) // 2)
        return BoardPainter(c, self.paint_cell, self.joined, self.themes, geometry)

    @cached_property
    def _tray_painter(self) -> BoardPainter:
        c = self.config
        rows, columns = -(-c.pieces // SLOTS), min(SLOTS, c.pieces)
        size = {"rows": (WIDEST + 1) * rows + 1, "columns": (WIDEST + 1) * columns + 1}
        clutter = c.clutter // 2  # as the cells are small
        style = c.model_copy(update={**size, "clutter": clutter, "coordinates": False})
        geometry = BoardGeometry.of(style.size, style.rows, style.columns, False, self.joined)
        geometry = replace(geometry, top=c.size - c.size // 40 - geometry.pitch * geometry.rows)
        return BoardPainter(style, self.paint_cell, self.joined, self.themes, geometry)

    @property
    def _tray_height(self) -> int:
        """Height of the lower part of the image, with the tray, in pixels."""
        size: int = self.config.size
        return size + size // 40 - self._tray_painter.geometry.top

    def _tray(self, state: PackingState) -> list[list[Any]]:
        """Cells of the tray, as `cells`."""
        style = self._tray_painter.style
        grid: list[list[Any]] = [[None] * style.columns for _ in range(style.rows)]
        for number, (shape, place) in enumerate(zip(state.pieces, state.places)):
            row, column = divmod(number, min(SLOTS, self.config.pieces))
            if place is None:
                _lay(grid, number, shape, row * (WIDEST + 1) + 1, column * (WIDEST + 1) + 1)
        return grid

    def paint_cell(self, canvas: Canvas, cell: Any, angle: float) -> None:
        side, floor = canvas.width, self.painter.theme.empty
        if cell is None:
            return
        canvas.rectangle(0, 0, side, side, blend(floor, BLACK, 0.3))
        inset = side * 0.02
        canvas.rectangle(inset, inset, side - 2 * inset, side - 2 * inset, blend(floor, BLACK, 0.12))
        if cell == EMPTY:
            return
        number, sides = cell
        colour = self.tint(COLOURS[number])
        for edge, fill in ((0.03, blend(colour, BLACK, 0.4)), (0.07, colour)):
            ends = [-side if sides >> direction & 1 else edge * side for direction in range(4)]
            top, right, bottom, left = ends
            canvas.rectangle(left, top, side - right - left, side - bottom - top, fill, radius=side * 0.14)
        canvas.text(ascii_uppercase[number], side / 2, side / 2, side * 0.3, blend(colour, WHITE, 0.85), angle=angle)


def _lay(grid: list[list[Any]], number: int, shape: Shape, row: int, column: int) -> None:
    """Lay a piece on a grid: on each cell, its number and the sides on which it goes on."""
    for r, c in shape:
        near = ((r - 1, c), (r, c + 1), (r + 1, c), (r, c - 1))
        grid[row + r][column + c] = number, sum(1 << side for side, cell in enumerate(near) if cell in shape)


# Pieces ---------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def options(rows: int, columns: int, pieces: tuple[Shape, ...], turns: bool) -> Mapping[Placing, int]:
    """Return the cells that each placing inside the board covers, as a bit mask."""
    masks = {}
    for piece, shape in enumerate(pieces):
        rotated = [rotation(shape, turn) for turn in range(4 if turns else 1)]
        for row, column, (turn, cells) in product(range(rows), range(columns), enumerate(rotated)):
            if all(row + r < rows and column + c < columns for r, c in cells):
                action = (piece, row, column, *([turn] if turns else []))
                masks[action] = sum(1 << (row + r) * columns + column + c for r, c in cells)
    return masks


def cut(rows: int, columns: int, pieces: int, rng: np.random.Generator) -> list[Shape] | None:
    """Cut a board into connected pieces whose sizes differ by at most 1, in random order; None if that gets stuck."""
    near, free = neighbours(rows, columns), [True] * (rows * columns)
    few, more = divmod(rows * columns, pieces)
    sizes = rng.permutation([few + 1] * more + [few] * (pieces - more)).tolist()
    drawn = iter(rng.random(rows * columns).tolist())
    shapes = []
    for size in sizes:
        piece = [free.index(True)]
        free[piece[0]] = False
        while len(piece) < size:
            beside = sorted({cell for own in piece for _, cell in near[own] if free[cell]})
            if not beside:
                return None
            piece.append(beside[int(next(drawn) * len(beside))])
            free[piece[-1]] = False
        shapes.append(moved([divmod(cell, columns) for cell in piece]))
        if max(map(max, shapes[-1])) >= WIDEST:
            return None
    return [shapes[i] for i in rng.permutation(pieces).tolist()]


@lru_cache(maxsize=4096)
def solve(
    rows: int, columns: int, pieces: tuple[Shape, ...], turns: bool, places: tuple[Place | None, ...]
) -> tuple[Placing, ...] | None:
    """Cover the board exactly, with the pieces that have a place where they are; None if that is impossible."""
    by_first: list[list[tuple[Placing, int]]] = [[] for _ in range(rows * columns)]
    fixed, taken, used = [], 0, 0
    for action, mask in options(rows, columns, pieces, turns).items():
        place = places[action[0]]
        if place is None:
            by_first[(mask & -mask).bit_length() - 1].append((action, mask))
        elif place == action[1:]:
            fixed.append(action)
            taken, used = taken | mask, used | 1 << action[0]
    rest = next(_cover(by_first, taken, used, (1 << rows * columns) - 1), None)
    return None if rest is None else (*fixed, *rest)


def _cover(
    by_first: list[list[tuple[Placing, int]]], taken: int, used: int, full: int
) -> Iterator[tuple[Placing, ...]]:
    """Yield all ways to cover the free cells; the piece on the first of them comes first."""
    if taken == full:
        yield ()
        return
    for action, mask in by_first[(~taken & taken + 1).bit_length() - 1]:
        if not (mask & taken or used >> action[0] & 1):
            for rest in _cover(by_first, taken | mask, used | 1 << action[0], full):
                yield (action, *rest)
