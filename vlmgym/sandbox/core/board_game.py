"""Base class of grid games: shared config fields, and image and description derived from `cells`."""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from itertools import chain, product
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from vlmgym.errors import StateError, UsageError, describe_exception
from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.answers.cells import Cell, Cells, Clicks, format_cells
from vlmgym.sandbox.core.config import GameConfig, config_field, setting
from vlmgym.sandbox.core.game import Game, ImageArray, StateT, retry
from vlmgym.sandbox.core.perception import read_grid
from vlmgym.sandbox.drawing.board import BoardGeometry, BoardPainter, Grid
from vlmgym.sandbox.drawing.canvas import MIDDLE, THEMES, Canvas, Colour, FontName, Theme, ThemeName, blend

LineT = TypeVar("LineT", str, tuple[Any, ...])

SMALLEST_CELL = 12
"""Minimum side of a cell in pixels."""


class BoardConfig(GameConfig):
    """Config fields shared by all grid games; each game narrows the bounds of `rows` and `columns`."""

    later_fields = (*GameConfig.later_fields, "actions_per_turn", "font", "interface", "prediction", "relief")

    rows: int = config_field("reasoning", 4, "Rows of the board.", ge=1)
    columns: int = config_field("reasoning", 4, "Columns of the board.", ge=1)
    coordinates: bool = config_field(
        "perception", [True, True, False, False, False], "Label rows and columns with their numbers."
    )
    origin: int = config_field("perception", 0, "Number of the first row and of the first column.", ge=0, le=1)
    theme: ThemeName = config_field("perception", "light", "Colour theme.")
    font: FontName = config_field("perception", "sans", "Font of letters and numbers.")
    relief: float = config_field(
        "perception", [1.0, 0.5, 0.0, 0.0, 0.0], "Height of tiles and figures, shown by light and shadow.", ge=0, le=1
    )
    similarity: float = config_field(
        "perception", [0.0, 0.05, 0.1, 0.35, 0.6], "Similarity of the tile colours.", ge=0.0, le=0.9
    )
    rotation: int = config_field("perception", [0, 0, 0, 15, 30], "Maximum rotation of tiles in degrees.", ge=0, le=30)
    noise: float = config_field(
        "perception", [0.0, 0.0, 0.0, 0.08, 0.16], "Amplitude of the noise on tiles; 1 is full scale.", ge=0.0, le=0.5
    )
    clutter: int = config_field("perception", [0, 0, 0, 2, 4], "Strokes drawn over each tile.", ge=0, le=12)

    actions_per_turn: int = setting(1, "Maximum number of actions in a response, played in order.", ge=1, le=100)
    interface: Literal["text", "click"] = setting(
        "text", "Answer with rows and columns, or with the points of the image to click on."
    )
    prediction: bool = setting(False, "Ask for the board after the move, in <prediction>.")

    @property
    def cell_count(self) -> int:
        """Number of cells of the board."""
        return self.rows * self.columns


class BoardGame(Game[StateT, ActionT]):
    """A game whose image is a grid of cells; image and description are both derived from `cells`.

    States have a field `variation_seed: int = 0`, the seed of the rotation, noise and clutter of tiles. It is constant
    within an episode, so that the image changes only where the state changes.
    """

    joined: ClassVar[bool] = False
    """True to draw cells without gaps, for walls and other things that span several cells."""
    themes: ClassVar[Mapping[ThemeName, Theme]] = THEMES
    """Colours of page, board and empty cells by theme; a game may have its own."""

    words: ClassVar[Mapping[Any, str]] = {}
    """Text for each possible content of a cell; without it, `cell_words` uses `str`."""

    def __init__(self, config: GameConfig | None = None) -> None:
        super().__init__(config)
        c = self.config
        geometry = self.geometry
        if geometry.cell < SMALLEST_CELL:
            raise UsageError(
                f"size={c.size} leaves {geometry.cell} pixels per cell of a {c.rows} x {c.columns} board, "
                f"but at least {SMALLEST_CELL} are needed"
            )
        self.actions_per_turn, self.asks_prediction = c.actions_per_turn, c.prediction
        if c.prediction and self.partially_observable:
            raise UsageError(f"{self.name} hides what a move leads to: remove prediction")
        if c.prediction and not self.prediction_form:
            raise UsageError(f"no move changes the board of {self.name}: remove prediction")
        if c.interface == "click":
            if not isinstance(self.answer, Cells):
                raise UsageError(f"{self.name} is not played by clicks: remove interface=click")
            self.answer = Clicks(self.answer, geometry, c.size)

    def start(self, rng: np.random.Generator) -> StateT:
        """Deal a board, and sample the seed of its variations."""
        state = retry(lambda: self.deal(rng), self.attempts, f"board of {self.name} with this config")
        return replace(state, variation_seed=int(rng.integers(2**32)))  # type: ignore[type-var]

    @abstractmethod
    def deal(self, rng: np.random.Generator) -> StateT | None:
        """Sample an initial state, without its `variation_seed`; None if the attempt failed, see `attempts`."""

    def cells(self, state: StateT) -> Grid:
        """Contents of all cells, rows x columns; by default `state.board`.

        Cells with equal values look the same except for rotation, noise and clutter.
        """
        cells: Grid = state.board  # type: ignore[attr-defined]
        return cells

    @abstractmethod
    def paint_cell(self, canvas: Canvas, cell: Any, angle: float) -> None:
        """Draw a cell, rotated by `angle` degrees, onto a canvas that already shows an empty cell."""

    def tint(self, colour: Colour) -> Colour:
        """Blend a tile colour towards grey by the configured similarity; for use in `paint_cell`."""
        return blend(colour, MIDDLE, self.config.similarity)

    def cell_words(self, cell: Any) -> str:
        """Text for a cell, by default for the first item if it is a tuple; must not contain commas or bars."""
        content = cell[0] if isinstance(cell, tuple) else cell
        return self.words[content] if self.words else str(content)

    @cached_property
    def _prompt_fields(self) -> dict[str, Any]:
        return {**super()._prompt_fields, "numbering": self.numbering, "cell_count": self.config.cell_count}

    @property
    def numbering(self) -> str:
        """How rows and columns are numbered, for prompts."""
        origin = self.config.origin
        note = "; feedback names cells as (row, column)" if self.config.interface == "click" else ""
        return f"Rows are numbered from {origin} at the top and columns from {origin} at the left{note}."

    def where(self, cell: Cell) -> str:
        """Format a cell as players see it, numbered from the configured origin: `(0, 1)`."""
        return format_cells(cell, self.config.origin)

    def _cells_in(self, text: str) -> list[Cell]:
        """Read the cells in a text, as `where` formats them; they need not be on the board."""
        origin = self.config.origin
        cells = re.findall(r"\((\d{1,4}), (\d{1,4})\)", text)
        return [(int(row) - origin, int(column) - origin) for row, column in cells]

    def inside(self, cell: Cell) -> bool:
        """Return True if a cell is on the board."""
        return 0 <= cell[0] < self.config.rows and bool(0 <= cell[1] < self.config.columns)

    def index_of(self, cell: Cell) -> int:
        """Index of a cell, counted row by row from 0."""
        return int(cell[0] * self.config.columns + cell[1])

    def cell_at(self, index: int) -> Cell:
        """Cell at an index; the inverse of `index_of`."""
        columns: int = self.config.columns
        return divmod(index, columns)

    @cached_property
    def all_cells(self) -> tuple[Cell, ...]:
        """All cells of the board, row by row."""
        return tuple(product(range(self.config.rows), range(self.config.columns)))

    def in_rows(self, cells: LineT) -> tuple[LineT, ...]:
        """Split a sequence of all cells, in reading order, into rows."""
        columns = self.config.columns
        return tuple([cells[start : start + columns] for start in range(0, len(cells), columns)])

    def check_state(self, state: StateT) -> None:
        """Check that the board has the configured size and that all its cells can be described."""
        c = self.config
        try:
            columns = [len(list(map(self.cell_words, row))) for row in self.cells(state)]
        except (LookupError, TypeError, ValueError) as error:
            raise StateError(f"the board cannot be described: {describe_exception(error)}") from None
        if columns != [c.columns] * c.rows:
            raise StateError(f"the board is not {c.rows} x {c.columns}")

    def draw(self, state: StateT) -> ImageArray:
        """Render the board with `draw_into` as uint8 RGB of shape (size, size, 3)."""
        image: ImageArray = np.empty((self.config.size, self.config.size, 3), np.uint8)
        self.draw_into(state, [image])
        return image

    def draw_into(self, state: StateT, out: Sequence[ImageArray], shown: StateT | None = None) -> None:
        """Draw the board; if `shown` is given, only the cells that differ from it."""
        variation_seed = _variation_seed(state)
        before = self.cells(shown) if shown is not None and _variation_seed(shown) == variation_seed else None
        self.painter.paint(self.cells(state), variation_seed, out[0], before)

    def describe(self, state: StateT) -> str:
        """Describe the board as one line per row, with comma-separated cells."""
        return "\n".join(", ".join(map(self.cell_words, row)) for row in self.cells(state))

    def described_state(self, state: StateT, text: str) -> StateT | None:
        """Return the state with the cells that a description states, and everything else unchanged.

        For games whose states have a field with the content of each cell, in rows or as one sequence in reading order.
        Returns None for other games, and if the text describes no board that this game can have.
        """
        words = read_grid(text)
        if [*map(len, words)] != [self.config.columns] * self.config.rows:
            return None
        for name, rows, contents in self._grids(state):
            try:
                lines = [
                    _like(line, [contents[word] if word in contents else self._content(word, contents) for word in row])
                    for line, row in zip(rows, words)
                ]
                content = getattr(state, name)
                value = _like(content, lines if content is rows else chain(*lines))
                described = self.require_valid(replace(state, **{name: value}))  # type: ignore[type-var]
                if read_grid(self.describe(described)) == words:
                    return described
            except (LookupError, StateError):
                continue
        return None

    def _grids(self, state: StateT) -> Iterator[tuple[str, Sequence[Any], Mapping[str, Any]]]:
        """Yield each field that may hold the cells: its name, its rows, and the content for each word of the board."""
        c, words = self.config, [*chain(*read_grid(self.describe(state)))]
        for name in (field.name for field in fields(state)):  # type: ignore[arg-type]
            rows = getattr(state, name)
            if isinstance(rows, tuple) and len(rows) == len(words):
                rows = self.in_rows(rows)
            if not isinstance(rows, tuple) or not all(isinstance(row, str | tuple) for row in rows):
                continue
            pairs = [*zip(words, chain(*rows))]
            if [*map(len, rows)] == [c.columns] * c.rows and len({*pairs}) == len({*words}):
                yield name, rows, dict(pairs)

    def _content(self, word: str, contents: Mapping[str, Any]) -> Any:
        """Return the content with this word, which is none of those on the board; raise `LookupError` without one."""
        if isinstance(next(iter(contents.values())), str):
            candidates: Iterable[Any] = (*string.printable, word)
        else:
            candidates = (*range(256), *(int(word) for _ in word[:1] if word.isdecimal() and len(word) < 10))
        for candidate in candidates:
            try:
                if self.cell_words(candidate).casefold() == word:
                    return candidate
            except (LookupError, TypeError, ValueError):
                continue
        raise LookupError(word)

    @cached_property
    def geometry(self) -> BoardGeometry:
        """Layout of the board in the image; by default, the board is in the middle."""
        c = self.config
        return BoardGeometry.of(c.size, c.rows, c.columns, c.coordinates, self.joined)

    @property
    def style(self) -> BoardConfig:
        """How the board is drawn; games override it to leave out some effects."""
        config: BoardConfig = self.config
        return config

    @cached_property
    def painter(self) -> BoardPainter:
        """Sprites and geometry for this config."""
        return BoardPainter(self.style, self.paint_cell, self.joined, self.themes, self.geometry)


def _like(example: str | tuple[Any, ...], parts: Iterable[Any]) -> str | tuple[Any, ...]:
    """Return a string or a tuple, as the example is, of these parts."""
    return "".join(parts) if isinstance(example, str) else tuple(parts)


def _variation_seed(state: Any) -> int:
    seed: int = state.variation_seed
    return seed


def find_cells(board: Iterable[Iterable[Any]], contents: Container[Any]) -> list[Cell]:
    """List the cells of a board whose content is in `contents`, in reading order."""
    return [(row, column) for row, line in enumerate(board) for column, cell in enumerate(line) if cell in contents]


def with_cell(board: tuple[LineT, ...], cell: Cell, content: LineT) -> tuple[LineT, ...]:
    """Return a copy of a board with one cell replaced; `content` is a line of length 1."""
    row, column = cell
    line = board[row]
    return board[:row] + (line[:column] + content + line[column + 1 :],) + board[row + 1 :]


def cells_of(cells: int) -> list[int]:
    """List the cells of a set, given as a bit mask; cells are indices, counted row by row."""
    members = []
    while cells:
        lowest = cells & -cells
        members.append(lowest.bit_length() - 1)
        cells ^= lowest
    return members
