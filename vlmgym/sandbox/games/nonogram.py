"""Nonogram: fill the cells that the numbers beside rows and columns describe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from operator import and_, or_
from typing import Any

import numpy as np

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.cells import Cell, Cells
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, find_cells, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray, Infos, Metrics, Step
from vlmgym.sandbox.drawing.board import BoardGeometry
from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.degrade import add_noise

OPEN, FILLED, WRONG = ".#x"
WORDS = {OPEN: "open", FILLED: "filled", WRONG: "wrong"}
PAPER: Colour = (250, 252, 255)
RULING: Colour = (150, 184, 214)
INK: Colour = (28, 48, 92)
HEADER: Colour = (222, 234, 246)
SHADOW: Colour = (46, 56, 78)
RED: Colour = (206, 58, 60)

PROMPT_V1 = """\
The image shows a nonogram with {rows} rows and {columns} columns. {numbering} The numbers to the left of a row and \
above a column are the lengths of its blocks of filled cells, in order; at least one empty cell is between two blocks, \
and 0 means no block. Fill all cells of the only solution, one per turn. Blue cells have been filled; a red cross \
marks a cell that was wrong and is empty in the solution; {left} wrong cells end the game.
Actions: {actions}.
{form}"""


class NonogramConfig(BoardConfig):
    """Configuration of nonogram."""

    rows: int = config_field("reasoning", [3, 4, 5, 6, 8], "Rows of cells.", ge=2, le=10)
    columns: int = config_field("reasoning", [3, 4, 5, 6, 8], "Columns of cells.", ge=2, le=10)
    mistakes: int = config_field("reasoning", 3, "Number of wrong cells that end the episode.", ge=1, le=10)


@dataclass(frozen=True, slots=True)
class NonogramState:
    """Cells as `.` (open), `#` (filled) or `x` (wrong); in the solution, all cells are `.` or `#`."""

    board: tuple[str, ...]
    solution: tuple[str, ...]
    variation_seed: int = 0


class Nonogram(BoardGame[NonogramState, Cell]):
    """Fill the cells that the numbers beside rows and columns describe.

    Description:
        Each puzzle can be solved by looking at one row or column at a time, and has therefore exactly one solution.

    Observation:
        The board with its numbers as an RGB image.

    Action:
        `MultiDiscrete([rows, columns])`: row and column of the cell to fill, from 0; it must be open.

    Reward:
        1 / (filled cells of the solution) for a cell of the solution; 0 for any other answer.

    Episode end:
        All cells of the solution are filled, or after `mistakes` wrong cells. Metrics: solved, mistakes.
    """

    name = "nonogram"
    skills = ("planning", "search")
    joined = True
    optimal_oracle = True
    answer = Cells(1, "the cell to fill", verbs=("fill",))
    attempts = 20_000
    Config = NonogramConfig
    State = NonogramState
    prompt_template = PROMPT_V1
    words = WORDS
    perception_form = (
        "the numbers above the columns in one line and those to the left of the rows in another, comma-separated, such "
        "as 1 2, 3, 1; then the board, one line per row, open, filled or wrong for each cell, comma-separated"
    )

    def deal(self, rng: np.random.Generator) -> NonogramState | None:
        c = self.config
        drawn = rng.random((c.rows, c.columns)) < 0.58
        solution = tuple("".join(FILLED if cell else OPEN for cell in row) for row in drawn.tolist())
        if not drawn.any() or solve(*clues(solution)) != solution:
            return None
        return NonogramState((OPEN * c.columns,) * c.rows, solution)

    def legal_actions(self, state: NonogramState) -> tuple[Cell, ...]:
        return () if self.ended(state) else tuple(find_cells(state.board, OPEN))

    def step(self, state: NonogramState, action: Cell, rng: np.random.Generator) -> Step[NonogramState]:
        (cell,) = self.answer.cells(action)
        row, column = cell
        if state.board[row][column] != OPEN:
            raise IllegalAction(f"the cell {self.where(cell)} is not open")
        right = state.solution[row][column] == FILLED
        after = replace(state, board=with_cell(state.board, cell, FILLED if right else WRONG))
        return Step(after, right / len(find_cells(state.solution, FILLED)), {"right": right})

    def ended(self, state: NonogramState) -> str | None:
        if find_cells(state.board, FILLED) == find_cells(state.solution, FILLED):
            return "the nonogram is solved"
        mistakes = len(find_cells(state.board, WRONG))
        return f"{mistakes} wrong cells" if mistakes >= self.config.mistakes else None

    def best_action(self, state: NonogramState) -> Cell | None:
        """First cell of the solution, in reading order, that is open."""
        return next(
            (cell for cell in find_cells(state.solution, FILLED) if state.board[cell[0]][cell[1]] == OPEN), None
        )

    def metrics(self, state: NonogramState, infos: Infos) -> Metrics:
        solved = find_cells(state.board, FILLED) == find_cells(state.solution, FILLED)
        return {"solved": float(solved), "mistakes": float(len(find_cells(state.board, WRONG)))}

    def check_state(self, state: NonogramState) -> None:
        super().check_state(state)
        c, marks = self.config, {(FILLED, FILLED), (OPEN, FILLED), (OPEN, OPEN), (WRONG, OPEN)}
        if [*map(len, state.solution)] != [c.columns] * c.rows:
            raise StateError(f"the solution is not {c.rows} x {c.columns}")
        if not {*zip("".join(state.board), "".join(state.solution))} <= marks:
            raise StateError("a cell is filled or wrong against the solution")

    # Images and text -----------------------------------------------------------------------------------------------

    def paint_cell(self, canvas: Canvas, cell: Any, angle: float) -> None:
        side = canvas.width
        canvas.rectangle(0, 0, side, side, self.tint(RULING))
        canvas.rectangle(0, 0, side * 0.97, side * 0.97, self.tint(PAPER))
        if cell == FILLED:
            canvas.rectangle(side * 0.08, side * 0.08, side * 0.81, side * 0.81, self.tint(INK), side * 0.08)
        elif cell == WRONG:
            for end in (0.75, 0.22):
                canvas.line((side * 0.22, side * (0.97 - end)), (side * 0.75, side * end), side * 0.09, self.tint(RED))

    @cached_property
    def geometry(self) -> BoardGeometry:
        """Layout with room for the numbers above and to the left of the board."""
        c = self.config
        room = c.size // 5
        board = BoardGeometry.of(c.size - room, c.rows, c.columns, c.coordinates, self.joined)
        return replace(board, left=board.left + room, top=board.top + room)

    @property
    def style(self) -> Any:
        """How the board is drawn; coordinates are outside the numbers, not at the board."""
        return self.config.model_copy(update={"coordinates": False})

    def draw_into(self, state: NonogramState, out: Sequence[ImageArray], shown: NonogramState | None = None) -> None:
        super().draw_into(state, out, shown)
        if shown is None or (shown.solution, shown.variation_seed) != (state.solution, state.variation_seed):
            self._add_numbers(state, out[0])

    def _add_numbers(self, state: NonogramState, image: ImageArray) -> None:
        """Draw the numbers above and to the left of the board; each row and column has a cached panel."""
        board, (across, down) = self.geometry, clues(state.solution)
        above, left = self._bands
        most = max(1, *map(len, across + down))
        for index, clue in enumerate(down):
            panel, x = self._panel(clue, index, True, most), board.left + index * board.pitch
            image[:above, x : x + board.cell] = panel
        for index, clue in enumerate(across):
            panel, y = self._panel(clue, index, False, most), board.top + index * board.pitch
            image[y : y + board.cell, :left] = panel

    @property
    def _bands(self) -> tuple[int, int]:
        """Height of the panels above the board, and width of those to its left, in pixels."""
        edge = max(2, self.config.size // 60)
        return self.geometry.top - edge, self.geometry.left - edge

    @cached_property
    def _panel(self) -> Callable[[Clue, int, bool, int], ImageArray]:
        """Function that draws the numbers of a row or column; arguments as in `_paint_panel`."""
        return lru_cache(maxsize=4096)(self._paint_panel)

    def _paint_panel(self, clue: Clue, index: int, above: bool, most: int) -> ImageArray:
        """Draw the numbers above a column, or to the left of a row; `most` is the largest count of numbers."""
        c, cell, theme, length = self.config, self.geometry.cell, self.painter.theme, self._bands[0 if above else 1]
        outer = max(8, c.size // 22) if c.coordinates else max(4, c.size // 60)  # coordinates are outside the numbers
        capitals = min(0.34 * cell, 0.032 * c.size, (min(self._bands) - outer) / (1.65 * most + 0.3))
        dark = c.theme == "dark"
        ink, panel = self.tint(PAPER if dark else INK), self.tint(SHADOW if dark else HEADER)
        canvas = Canvas(*((cell, length) if above else (length, cell)), theme.page, font=c.font)
        inset = cell * 0.03

        def write(text: str, along: float, height: float, colour: Colour) -> None:
            canvas.text(text, *((cell / 2, along) if above else (along, cell / 2)), height, colour)

        if above:
            canvas.rectangle(inset, outer, cell - 2 * inset, length - outer, panel, cell * 0.08)
        else:
            canvas.rectangle(outer, inset, length - outer, cell - 2 * inset, panel, cell * 0.08)
        if c.coordinates:
            write(str(index + c.origin), outer * 0.55, min(c.size / 44, cell * 0.4), theme.label)
        for place, number in enumerate(reversed(clue or (0,))):
            write(str(number), length - capitals * (1.1 + 1.65 * place), capitals, ink)
        rng = np.random.default_rng([index, above, *clue])
        return add_noise(canvas.pixels(), c.noise, rng)

    def describe(self, state: NonogramState) -> str:
        across, down = clues(state.solution)
        numbers = [", ".join(" ".join(map(str, line or (0,))) for line in lines) for lines in (down, across)]
        return "\n".join([*numbers, super().describe(state)])

    def prompt(self, state: NonogramState) -> str:
        return self.fill_prompt(left=self.config.mistakes - len(find_cells(state.board, WRONG)))

    def explain(self, state: NonogramState, action: Cell) -> str:
        cells = [", ".join(self.where(cell) for cell in find_cells(state.solution, FILLED) if cell[0] == action[0])]
        filled = "filled" if state.solution[action[0]][action[1]] == FILLED else "empty"
        row = f"Row {action[0] + self.config.origin} of the solution has the filled cells {cells[0] or 'none'}."
        return f"{row} The cell {self.where(action)} is {filled}."


# Solver ---------------------------------------------------------------------------------------------------------------

Clue = tuple[int, ...]
Clues = tuple[tuple[Clue, ...], tuple[Clue, ...]]
"""Lengths of the blocks of each row, and of each column."""


def clues(board: Sequence[str]) -> Clues:
    """Return the lengths of the blocks of filled cells."""
    across = tuple(tuple(map(len, line.replace(OPEN, " ").split())) for line in board)
    down = tuple(tuple(map(len, "".join(line).replace(OPEN, " ").split())) for line in zip(*board))
    return across, down


def solve(across: Sequence[Clue], down: Sequence[Clue]) -> tuple[str, ...] | None:
    """Solve a nonogram line by line; None if this does not determine all cells.

    A cell is known once all arrangements of the blocks of its row, or of its column, agree about it.
    """
    sides = [[_arrangements(clue, len(down)) for clue in across], [_arrangements(clue, len(across)) for clue in down]]
    before = -1
    while (left := sum(len(fitting) for lines in sides for fitting in lines)) != before:
        before = left
        for lines, crossing in (sides, sides[::-1]):
            for index, fitting in enumerate(lines):
                if not fitting:
                    return None
                every, some = reduce(and_, fitting), reduce(or_, fitting)
                for other, candidates in enumerate(crossing):
                    if len(candidates) > 1 and (cell := every >> other & 1) == some >> other & 1:
                        crossing[other] = tuple([line for line in candidates if line >> index & 1 == cell])
    if any(len(fitting) > 1 for fitting in sides[0]):
        return None
    board = tuple(
        "".join(FILLED if line >> column & 1 else OPEN for column in range(len(down))) for (line,) in sides[0]
    )
    return board if clues(board)[1] == tuple(down) else None


@lru_cache(maxsize=4096)
def _arrangements(clue: Clue, length: int) -> tuple[int, ...]:
    """Return all arrangements of blocks in a line of cells, as bit masks with the first cell as the lowest bit."""
    return tuple(_placed(clue, length))


def _placed(clue: Clue, length: int) -> Iterator[int]:
    if not clue:
        yield 0
        return
    first, rest = clue[0], clue[1:]
    for start in range(length - sum(clue) - len(rest) + 1):
        used = start + first + bool(rest)
        for line in _placed(rest, length - used):
            yield ((1 << first) - 1) << start | line << used
