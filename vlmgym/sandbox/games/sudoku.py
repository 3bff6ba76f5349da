"""Sudoku: write numbers into a grid so that no row, column or box contains a number twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from pydantic import NonNegativeInt

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.base import Answer, plain, unreadable
from vlmgym.sandbox.answers.cells import format_cells
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, retry
from vlmgym.sandbox.drawing.canvas import COLOURS, THEMES, Canvas, blend

Entry = tuple[int, int, int]
"""Row and column, both zero-based, and number."""

PROMPT_V1 = """\
The image shows a Sudoku with {rows} rows and {columns} columns. {numbering} Each row, each column and each shaded or \
unshaded box of {height} rows and {width} columns must contain every number from 1 to {rows}. Black numbers are given, \
blue ones were written. Write one number per turn into an empty cell. A number that is already in the row, column or \
box is illegal. A number that is not part of the only solution is a mistake and is not written; {mistakes} the game.
Actions: {actions}.
{form}"""

_CELL = r"[(\[]?\s*(?:row\s*)?([0-9]{1,4})(?:\s*,\s*|\s+)(?:col(?:umn)?\s*)?([0-9]{1,4})\s*[)\]]?"
_SPELLINGS = [
    re.compile(spelling, re.IGNORECASE | re.ASCII)
    for spelling in (
        # The lookbehind keeps the digits of a number together.
        rf"{_CELL}\s*(?:,|:|=|->|\u2192)?\s*(?:number\s*)?(?<![0-9])([0-9]{{1,4}})\s*[)\]]?",
        rf"(?:write\s+|place\s+|put\s+)?(?P<number>[0-9]{{1,4}})\s+(?:at|in|into)\s+{_CELL}",
    )
]


SEARCH_CLUES = {6: 10, 9: 28}
"""Maximum number of clues of puzzles that need a search, by side; with more, hardly any puzzle does."""


class SudokuConfig(BoardConfig):
    """Configuration of Sudoku."""

    rows: int = config_field("reasoning", [4, 6, 9, 9, 9], "Rows of the board: 4, 6 or 9.", ge=4, le=9)
    columns: int = config_field("reasoning", [4, 6, 9, 9, 9], "Columns of the board; equal to `rows`.", ge=4, le=9)
    relief: float = config_field(
        "perception", 0.0, "Height of tiles and figures, shown by light and shadow.", ge=0, le=1
    )
    clues: int = config_field(
        "reasoning", [10, 22, 45, 36, 26], "Number of clues; more if no further clue can be removed.", ge=0, le=80
    )
    search: bool = config_field(
        "reasoning",
        [False, False, False, False, True],
        "Deal puzzles that need more than finding the only number for a cell or the only cell for a number.",
    )
    mistakes: int = config_field("reasoning", 3, "Number of mistakes that end the game.", ge=1, le=100)

    def model_post_init(self, context: object) -> None:
        if self.rows != self.columns or self.rows not in (4, 6, 9):
            raise ValueError(f"a Sudoku has 4 x 4, 6 x 6 or 9 x 9 cells, not {self.rows} x {self.columns}")
        if self.clues >= self.cell_count:
            raise ValueError(f"{self.clues} clues leave no cell of {self.rows} x {self.columns} empty")
        if self.search and self.clues > (most := SEARCH_CLUES.get(self.rows, -1)):
            needs = f"at most {most} clues" if most >= 0 else "6 x 6 or 9 x 9 cells"
            raise ValueError(f"puzzles of {self.rows} x {self.columns} cells that need a search have {needs}")


@dataclass(frozen=True, slots=True)
class SudokuState:
    """A Sudoku, as rows of digits, 0 for an empty cell.

    Attributes:
        board: Clues and the numbers written so far.
        clues: Numbers given at the start.
        solution: The only solution; not shown.
        mistakes: Number of mistakes made.
    """

    board: tuple[str, ...]
    clues: tuple[str, ...]
    solution: tuple[str, ...]
    mistakes: NonNegativeInt = 0
    variation_seed: int = 0


class Entries(Answer[Entry]):
    """Coordinates and a number: `(0, 2) 4`; also reads `row 0, column 2: 4`, `0, 2, 4` and `4 at (0, 2)`."""

    form = "(row, column) number"

    @cached_property
    def space(self) -> spaces.MultiDiscrete:
        """Row, column and number."""
        return spaces.MultiDiscrete([self.config.rows] * 3, start=[0, 0, 1])

    @property
    def sentence(self) -> str:
        """The possible answers, for prompts."""
        return f"the coordinates (row, column) of an empty cell and the number, for example {self.format((0, 2, 4))}"

    def parse(self, text: str) -> Entry:
        text = plain(text)
        for spelling in _SPELLINGS:
            if (match := spelling.fullmatch(text)) is not None:
                row, column, number = map(int, match.groups())
                if "number" in spelling.groupindex:
                    row, column, number = column, number, row
                return row - self.config.origin, column - self.config.origin, number
        raise unreadable(text, f"a coordinate and a number like {self.format((0, 2, 4))}")

    def format(self, action: Entry) -> str:
        row, column, number = action
        return f"{format_cells((row, column), self.config.origin)} {number}"


class Sudoku(BoardGame[SudokuState, Entry]):
    """Fill a grid so that each row, column and box contains every number once.

    Description:
        Puzzles have exactly one solution. Unless `search` is set, two rules are enough to find it: write a number if no
        other number can be in the cell, or if it can be in no other cell of a row, column or box. A legal number that
        is not part of the solution is a mistake and is not written.

    Observation:
        The grid as an RGB image, with boxes shaded alternately.

    Action:
        `MultiDiscrete([side, side, side])`: row and column of an empty cell, from 0, and the number, from 1. Numbers
        already in the row, column or box are illegal.

    Reward:
        1 / n for each correct number, where n is the number of empty cells at the start; 0 for a mistake and for an
        illegal or unparsable answer.

    Episode end:
        The grid is full, or `mistakes` mistakes have been made. Metrics: fraction of empty cells filled, solved,
        mistakes.
    """

    name = "sudoku"
    skills = ("search",)
    reward_is_hint = True
    answer = Entries()
    Config = SudokuConfig
    State = SudokuState
    prompt_template = PROMPT_V1
    perception_form = "the grid, one line per row, numbers separated by commas, 0 for an empty cell"

    def deal(self, rng: np.random.Generator) -> SudokuState:
        c = self.config
        dealt = deal(c.rows, c.clues, c.search, int(rng.integers(2**32)))
        board, solution = (self.in_rows("".join(map(str, numbers))) for numbers in dealt)
        return SudokuState(board, board, solution)

    def legal_actions(self, state: SudokuState) -> tuple[Entry, ...]:
        if self.ended(state) is not None:
            return ()
        puzzle = self._puzzle(state)
        return tuple([(*self.cell_at(cell), number) for cell in puzzle.empty for number in puzzle.options(cell)])

    def step(self, state: SudokuState, action: Entry, rng: np.random.Generator) -> Step[SudokuState]:
        row, column, number = self.answer.numbers(action, "row, column and number")
        side, where = self.config.rows, self.where((row, column))
        if not self.inside((row, column)):
            raise IllegalAction(f"{where} is outside the {side} x {side} board")
        if not 1 <= number <= side:
            raise IllegalAction(f"{number} is not a number from 1 to {side}")
        if state.board[row][column] != "0":
            raise IllegalAction(f"the cell {where} is not empty")
        if not self._puzzle(state).candidates(self.index_of((row, column))) >> number & 1:
            raise IllegalAction(f"{number} is already in the row, column or box of {where}")
        if state.solution[row][column] != str(number):
            after = replace(state, mistakes=state.mistakes + 1)
            return Step(after, 0.0, {"correct": False})
        after = replace(state, board=with_cell(state.board, (row, column), str(number)))
        return Step(after, 1 / "".join(state.clues).count("0"), {"correct": True})

    def ended(self, state: SudokuState) -> str | None:
        if state.mistakes >= self.config.mistakes:
            return "too many mistakes"
        return "the Sudoku is solved" if state.board == state.solution else None

    def best_action(self, state: SudokuState) -> Entry | None:
        """Write a number that one of the two rules proves, or else fill a cell that has the fewest candidates."""
        if self.ended(state) is not None:
            return None
        puzzle, solution = self._puzzle(state), _numbers(state.solution)
        if (step := puzzle.next_single(solution)) is not None:
            return (*self.cell_at(step.cell), step.number)
        cell = min(puzzle.empty, key=lambda cell: len(puzzle.options(cell)))
        return (*self.cell_at(cell), solution[cell])

    def metrics(self, state: SudokuState, infos: Infos) -> Metrics:
        empty, left = ("".join(lines).count("0") for lines in (state.clues, state.board))
        return {"cells filled": 1 - left / empty, "solved": float(not left), "mistakes": float(state.mistakes)}

    def cells(self, state: SudokuState) -> list[list[str]]:
        """Digit of each cell, followed by `+` if the player wrote it and by `#` if its box is shaded."""
        return [
            [number + ("+" if number != clue else "") + ("#" if shaded else "") for number, clue, shaded in zip(*lines)]
            for lines in zip(state.board, state.clues, self._shaded)
        ]

    def cell_words(self, cell: str) -> str:
        return cell[0]

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        side, theme = canvas.width, THEMES[self.config.theme]
        shade = (0.36 if self.config.theme == "light" else 0.22) if "#" in cell else 0.0
        paper = blend(theme.tile, theme.board, shade)
        canvas.rectangle(0, 0, side, side, paper, radius=side * 0.09)
        if cell[0] != "0":
            ink = self.tint(COLOURS["blue"] if "+" in cell else (30, 30, 34))
            canvas.text(cell[0], side / 2, side / 2, side * 0.5, ink, angle=angle)

    def prompt(self, state: SudokuState) -> str:
        height, width = box_shape(self.config.rows)
        left = self.config.mistakes - state.mistakes
        mistakes = "the next mistake ends" if left == 1 else f"{left} more mistakes end"
        return self.fill_prompt(height=height, width=width, mistakes=mistakes)

    def explain(self, state: SudokuState, action: Entry) -> str:
        """State which of the two rules proves the number, or the candidates of the cell if neither does."""
        row, column, number = action
        puzzle, where = self._puzzle(state), self.where((row, column))
        cell = self.index_of((row, column))
        step = puzzle.single(cell, number)
        if step is None:
            return f"The numbers left for {where} are {', '.join(map(str, puzzle.options(cell)))}; I try {number}."
        if step.unit is None:
            return f"The row, column and box of {where} contain every other number, so it must be {number}."
        kind = step.unit // puzzle.side
        unit = f"{('row', 'column')[kind]} {(row, column)[kind] + self.config.origin}" if kind < 2 else "its box"
        return f"No other empty cell of {unit} can be {number}, so {where} must be."

    @cached_property
    def _shaded(self) -> list[list[bool]]:
        side, (height, width) = self.config.rows, box_shape(self.config.rows)
        return [[(row // height + column // width) % 2 == 1 for column in range(side)] for row in range(side)]

    def _puzzle(self, state: SudokuState) -> Puzzle:
        return Puzzle(_numbers(state.board), self.config.rows)


def _numbers(lines: Sequence[str]) -> list[int]:
    return [int(number) for number in "".join(lines)]


# Puzzles --------------------------------------------------------------------------------------------------------------
#
# Sudoku: candidates, singles, search, and dealing puzzles with one solution.
#
# A single is a number that follows from one of two rules, see `Single`. A set of numbers is an int whose bit n stands
# for the number n.

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

    @property
    def empty(self) -> list[int]:
        """Cells without a number."""
        return [cell for cell, number in enumerate(self.numbers) if not number]

    def candidates(self, cell: int) -> int:
        """Set of numbers that do not occur in the row, column or box of a cell."""
        free, (row, column, box) = self._free, self.layout.units_of[cell]
        return free[row] & free[column] & free[box]

    def options(self, cell: int) -> list[int]:
        """List the candidates of a cell."""
        candidates = self.candidates(cell)
        return [number for number in range(1, self.side + 1) if candidates >> number & 1]

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
        cells = sorted(self.empty, key=lambda cell: self.candidates(cell).bit_count() > 1)
        return next(filter(None, (self.single(cell, solution[cell]) for cell in cells)), None)

    def is_simple(self, solution: Sequence[int]) -> bool:
        """Return whether singles alone fill the grid."""
        rest = Puzzle(self.numbers, self.side)
        empty, before = self.empty, None
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
            trial = Puzzle(self.numbers, self.side)
            trial.put(cell, other)
            if other != number and next(trial.solutions(), None) is not None:
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

    def attempt() -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        puzzle, solution = _deal(side, clues, search, rng)
        return None if search and puzzle.is_simple(solution) else (tuple(puzzle.numbers), solution)

    return retry(attempt, MAX_DEALS, f"{side} x {side} puzzle with {clues} clues that needs a search")


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
