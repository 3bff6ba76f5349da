"""Answers that name cells of a board by their coordinates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache

from gymnasium import spaces

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.base import Answer, plain, unreadable

Cell = tuple[int, int]
"""Row and column, zero-based."""
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
        text = plain(text)
        verb, _, rest = text.partition(" ")
        cells, spellings = rest.strip() if verb.lower() in self.verbs else text, _spellings(self.clicks)
        match = spellings.fullmatch(cells)
        if match is None and (cells[:1], cells[-1:]) in (("(", ")"), ("[", "]")):
            match = spellings.fullmatch(cells[1:-1].strip())
        if match is None:
            what = {1: "a coordinate", 2: "two coordinates"}.get(self.clicks, f"{self.clicks} coordinates")
            example = format_cells([number for column in range(self.clicks) for number in (0, column)], self.origin)
            raise unreadable(text, f"{what} like {example}")
        return tuple([int(group) - self.origin for group in match.groups() if group and group[-1].isdigit()])

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
                raise IllegalAction(f"{format_cells(cell, self.origin)} is outside the {rows} x {columns} board")
        return cells


def format_cells(numbers: Sequence[int], origin: int = 0) -> str:
    """Format zero-based rows and columns as in prompts, `(0, 1) (2, 3)`, numbered from `origin`."""
    shown = [number + origin for number in numbers]
    return " ".join(f"({row}, {column})" for row, column in zip(shown[::2], shown[1::2]))


@lru_cache
def _spellings(count: int) -> re.Pattern[str]:
    bracketed = [rf"(?:(?P<mark{i}>{_MARK}){_BRACKETED}(?P=mark{i})|{_BRACKETED})" for i in range(count)]
    cells = rf"\s*(?:(?:{_JOINED}|[-\u2013])\s*)?".join(bracketed)
    bare = rf"(?:\s*(?:{_JOINED})\s*|\s+)".join([_NUMBERS] * count)
    return re.compile(f"{cells}|{bare}", re.IGNORECASE | re.ASCII)
