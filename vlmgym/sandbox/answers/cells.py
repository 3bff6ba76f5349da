"""Answers that name cells of a board by their coordinates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import chain

from gymnasium import spaces

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.base import Answer, plain, unreadable
from vlmgym.sandbox.drawing.board import BoardGeometry

Cell = tuple[int, int]
"""Row and column, zero-based."""
CELL = r"\(\d{1,4}, \d{1,4}\)"
"""Regular expression of a cell, as `BoardGame.where` formats it."""
Pair = tuple[int, int, int, int]
"""Row and column of the first cell, then of the second, zero-based."""

_COLUMN = r"col(?:umn)?\s*(?:[:=]\s*)?"
_NUMBERS = rf"(?:row\s*(?:[:=]\s*)?)?([0-9]{{1,4}})\s*(?:,\s*(?:{_COLUMN})?|{_COLUMN})([0-9]{{1,4}})"
_SIGNED = _NUMBERS.replace("([0-9]", "([+-]?[0-9]")
_BRACKETED = rf"(?:\(\s*{_SIGNED}\s*\)|\[\s*{_SIGNED}\s*\])"
_JOINED = (
    r",\s*and\b|and\b|to\b|with\b|<?[-=]>|[\u2192\u2194\u21d2\u21d4,;&]"
    r"|\\(?:to|(?:left)?rightarrow)\b|\\text\{\s*and\s*\}"
)
_MARK = r"[*_`\"'$]{1,3}"
"""Emphasis, code, quote or LaTeX marks around a single cell."""


class Cells(Answer[tuple[int, ...]]):
    """Coordinates of one or more cells, `(row, column)`, numbered from the configured `origin`.

    Reads numbers with or without brackets, such as `[[0, 1], [2, 3]]`, `(0,1) -> (2,3)`, `0,1,2,3` or
    `row 0, column 1 and row 2, column 3`, optionally after one of `verbs`. Signs are read only within brackets.
    """

    def __init__(
        self, count: int, noun: str = "", verbs: Sequence[str] = (), example: tuple[int, ...] | None = None
    ) -> None:
        """Create the kind of answer.

        Args:
            count: Number of cells.
            noun: What the cells are, for prompts, e.g. `the lamp to press`.
            verbs: Verbs that may precede the cells.
            example: Rows and columns for the example in prompts; negative ones count from the end.
        """
        self.clicks, self.noun, self.verbs, self.example = count, noun, verbs, example
        self.form = " ".join(["(row, column)"] * count)

    @cached_property
    def space(self) -> spaces.MultiDiscrete:
        """Row and column of each cell."""
        return spaces.MultiDiscrete([self.config.rows, self.config.columns] * self.clicks)

    @property
    def sentence(self) -> str:
        """`the coordinates (row, column) of the lamp to press, for example (0, 1)`."""
        text = f"the coordinates (row, column) of {self.noun}"
        if self.example is None:
            return text
        example = [number % len(numbers) for number, numbers in zip(self.example, self.ranges)]
        return f"{text}, for example {format_cells(example, self.config.origin)}"

    def parse(self, text: str) -> tuple[int, ...]:
        return tuple([number - self.origin for number in self._read(text, "coordinate")])

    def _read(self, text: str, noun: str) -> list[int]:
        """Read the numbers of an answer; `noun` is what two of them are."""
        text = plain(text)
        verb, _, rest = text.partition(" ")
        cells, spellings = rest.strip() if verb.lower() in self.verbs else text, _spellings(self.clicks)
        match = spellings.fullmatch(cells)
        if match is None and (cells[:1], cells[-1:]) in (("(", ")"), ("[", "]")):
            match = spellings.fullmatch(cells[1:-1].strip())
        if match is None:
            expected = {1: f"a {noun}", 2: f"two {noun}s"}.get(self.clicks, f"{self.clicks} {noun}s")
            example = format_cells([number for column in range(self.clicks) for number in (0, column)], self.origin)
            raise unreadable(text, f"{expected} like {example}")
        return [int(group) for group in match.groups() if group and group[-1].isdigit()]

    @property
    def origin(self) -> int:
        """Number of the first row and of the first column."""
        origin: int = self.config.origin
        return origin

    def format(self, action: tuple[int, ...]) -> str:
        """Write cells as in prompts: `(0, 1) (2, 3)`."""
        return format_cells(action, self.origin)

    def clicked(self, cells: Sequence[Cell]) -> tuple[int, ...]:
        action: tuple[int, ...] = self.to_action([number for cell in cells for number in cell])
        return action

    def cells(self, action: object) -> list[Cell]:
        """Return the cells of an action, for `Game.step`; raise `IllegalAction` if it is invalid or off the board."""
        numbers = self.numbers(action, "row and column of each cell")
        cells = list(zip(numbers[::2], numbers[1::2]))
        rows, columns = self.config.rows, self.config.columns
        for cell in cells:
            if not (0 <= cell[0] < rows and 0 <= cell[1] < columns):
                raise IllegalAction(f"{self._named(cell)} is outside the {rows} x {columns} board")
        return cells

    def _named(self, cell: Cell) -> str:
        """Name a cell off the board as the answer did."""
        return format_cells(cell, self.origin)


class Clicks(Cells):
    """Points of the image to click on, `(x, y)`, from 0 to `SCALE` from the left and from the top.

    The action is that of the cells at these points; a point (x, y) off the board has the cell (`OFF_BOARD` - y,
    `OFF_BOARD` - x), which no board has. Reads the same spellings as `Cells`.
    """

    names_points = True

    def __init__(self, cells: Cells, geometry: BoardGeometry, size: int) -> None:
        """Create the kind of answer for a board whose image has `size` x `size` pixels."""
        noun = cells.noun.replace(" and of ", " and ")  # `Cells` writes "the coordinates of" before it
        super().__init__(cells.clicks, noun, (*cells.verbs, "click"))
        self.form = " ".join(["(x, y)"] * self.clicks)
        self.config, self._geometry, self._size = cells.config, geometry, size

    @property
    def sentence(self) -> str:
        """What to click on, and the scale of its points."""
        points = "the point (x, y)" if self.clicks == 1 else "the points (x, y)"
        scale = f"x from 0 at the left edge of the image to {SCALE} at the right, y from 0 at the top to {SCALE}"
        return f"click on {self.noun}: give {points}, {scale} at the bottom"

    def parse(self, text: str) -> tuple[int, ...]:
        numbers = self._read(text, "point")
        return tuple(chain(*map(self._cell_at, zip(numbers[::2], numbers[1::2]))))

    def _cell_at(self, point: tuple[int, int]) -> Cell:
        x, y = point
        cell = self._geometry.cell_at(x * self._size // SCALE, y * self._size // SCALE)
        return cell or (OFF_BOARD - y, OFF_BOARD - x)

    def format(self, action: tuple[int, ...]) -> str:
        """Write the centres of the cells: `(125, 80)`; a point off the board stays as it is."""
        return format_cells([*chain(*map(self._point_of, zip(action[::2], action[1::2])))])

    def _point_of(self, cell: Cell) -> tuple[int, int]:
        if cell[0] < 0:
            return OFF_BOARD - cell[1], OFF_BOARD - cell[0]
        x, y, width, height = self._geometry.cell_box(*cell)
        return round((x + width / 2) * SCALE / self._size), round((y + height / 2) * SCALE / self._size)

    def _named(self, cell: Cell) -> str:
        return f"the point {format_cells(self._point_of(cell))}"


SCALE = 1000
"""Points of clicks are in thousandths of the image's side, as vision-language models give them."""
OFF_BOARD = -10_000
"""Below all coordinates that answers can have, which are four digits with a sign."""


def format_cells(numbers: Sequence[int], origin: int = 0) -> str:
    """Format zero-based rows and columns as in prompts, `(0, 1) (2, 3)`, numbered from `origin`."""
    coordinates = [number + origin for number in numbers]
    return " ".join(f"({row}, {column})" for row, column in zip(coordinates[::2], coordinates[1::2]))


@lru_cache
def _spellings(count: int) -> re.Pattern[str]:
    bracketed = [rf"(?:(?P<mark{i}>{_MARK}){_BRACKETED}(?P=mark{i})|{_BRACKETED})" for i in range(count)]
    cells = rf"\s*(?:(?:{_JOINED}|[-\u2013])\s*)?".join(bracketed)
    bare = rf"(?:\s*(?:{_JOINED})\s*|\s+)".join([_NUMBERS] * count)
    return re.compile(f"{cells}|{bare}", re.IGNORECASE | re.ASCII)
