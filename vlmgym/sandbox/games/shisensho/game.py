"""Shisen-Sho: remove pairs of equal tiles connected by a path with few turns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import SerializerFunctionWrapHandler, model_serializer

from vlmgym.errors import IllegalAction, UsageError
from vlmgym.sandbox.answers.cells import CELL, Cells, Pair
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_cell
from vlmgym.sandbox.core.config import config_field, setting
from vlmgym.sandbox.core.game import Infos, Metrics, Step
from vlmgym.sandbox.core.search import Planner
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.drawing.shapes import (
    COLOUR_NAMES,
    EMPTY,
    MAX_COLOURS,
    MAX_SHAPES,
    SHAPE_NAMES,
    paint_colour_shape,
    tile_kinds,
)
from vlmgym.sandbox.games.shisensho import boards, images
from vlmgym.sandbox.games.shisensho.boards import Bitboard, Board, Cell, PathFinder, Square
from vlmgym.sandbox.games.shisensho.images import DealtImages, ImageTile, TileImages


class ShisenShoConfig(BoardConfig):
    """Configuration of Shisen-Sho.

    `colours` and `shapes` count as perception: the size of the board and `copies` determine the number of kinds of
    tile. With more colours and shapes to choose from, tiles are only harder to distinguish or name.

    `colours`, `relief`, `shapes` and `similarity` do not apply to tiles with images; `variety` applies only to these.
    If the images have fewer classes than the board needs kinds, some classes have more than `copies` tiles.
    """

    rows: int = config_field(
        "reasoning", [4, 4, 6, 8, 10], "Rows of the board; rows x columns must be even.", ge=2, le=16
    )
    columns: int = config_field("reasoning", [4, 6, 6, 8, 10], "Columns of the board.", ge=2, le=16)
    copies: Literal[2, 4] = config_field(
        "reasoning", 4, "Number of tiles per kind; one kind has 2 if rows x columns is not divisible by 4."
    )
    turns: int = config_field("reasoning", [2, 2, 2, 1, 1], "Maximum number of turns of a path.", ge=0, le=4)
    solvable: bool = config_field("reasoning", True, "Deal boards that can be cleared; if false, random boards.")
    colours: int = config_field(
        "perception", [5, 5, 6, 7, 8], "Number of colours to choose tiles from.", ge=1, le=MAX_COLOURS
    )
    shapes: int = config_field(
        "perception", [5, 6, 6, 7, 8], "Number of shapes to choose tiles from.", ge=1, le=MAX_SHAPES
    )
    tiles: Literal["shapes", "digits", "cifar10", "folder"] = config_field(
        "perception", "shapes", "Coloured shapes, or images that match by class: digits, CIFAR-10, or those in data."
    )
    variety: int = config_field(
        "perception", [1, 2, 256, 256, 256], "Maximum number of different images per class on a board.", ge=1, le=256
    )
    data: str | None = setting(
        None,
        "Your own images: a folder with one subfolder per class, or a table with image and label columns.",
    )
    split: str | None = setting(None, "Split of the data; CIFAR-10 has test (default) and train.")
    bad_rows: Literal["skip", "fail"] = setting("skip", "Skip unreadable images and list them in the state, or fail.")

    def model_post_init(self, context: object) -> None:
        """Check the numbers of cells and kinds, and that `data` and `split` are given only where they apply.

        With `tiles=folder`, `data` must be given.
        """
        cells = self.rows * self.columns
        if cells % 2:
            raise ValueError(f"rows x columns must be even, got {self.rows} x {self.columns}")
        if self.tiles == "folder" and self.data is None:
            raise ValueError("tiles=folder needs data=, such as a folder with a subfolder per class")
        for name, value in (("data", self.data), ("split", self.split)):
            if self.tiles in ("shapes", "digits") and value is not None:
                raise ValueError(f"{name} applies to tiles=folder and tiles=cifar10, not to tiles={self.tiles}")
        if self.tiles == "shapes" and self.kinds > self.colours * self.shapes:
            raise ValueError(
                f"{self.rows} x {self.columns} cells with {self.copies} copies need {self.kinds} kinds of tile, but "
                f"{self.colours} colours x {self.shapes} shapes make {self.colours * self.shapes}"
            )

    @property
    def kinds(self) -> int:
        """Number of tile kinds that a board needs."""
        return -(-self.rows * self.columns // self.copies)

    @property
    def unused_fields(self) -> tuple[str, ...]:
        return ("variety",) if self.tiles == "shapes" else ("colours", "relief", "shapes", "similarity")


# .. -------------------------------------------------------------------------------------------------------------------

PROMPT_V1 = """\
The image shows a Shisen-Sho board with {rows} rows and {columns} columns. {numbering} {tiles} A move is legal only if \
a path connects the two tiles. The path runs {route}, passes only through empty cells, and may leave the board to run \
just outside its edges. Adjacent tiles are always connected. Tiles do not move. Clear the board; the game ends when no \
pair can be connected.
Actions: {actions}.
{form}"""

_SHAPES = """\
Each tile shows a shape ({shapes}) in a colour ({colours}). A move removes two tiles of the same shape and colour."""
_IMAGES = "Each tile shows {kind} ({classes}). A move removes two tiles of the same kind, even if their images differ."
_PERCEPTION = "the board, one line per row, tiles separated by commas, for example {tile}; {empty} for an empty cell"

_STATEMENT = re.compile(
    rf"(?P<chosen>\bI choose )?(?P<name>[^\s,;:.][^,;:.]{{0,59}}), (?P<cells>{CELL} {CELL})"
    r"(?(chosen)| (?:\d+|none)\b)"
)
"""Statements of `ShisenSho.explain`."""
MAX_EXPLAINED = 20
"""Maximum number of pairs in an explanation."""
MAX_LISTED = 100
"""Maximum number of image classes in a prompt."""


@dataclass(frozen=True, slots=True)
class ShisenShoState:
    """Tile names, rows x columns: the class name for tiles with images, `empty` for no tile."""

    board: Board
    variation_seed: int = 0
    images: DealtImages | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit `images` from the JSON if tiles show shapes."""
        written: dict[str, Any] = write(self)
        if self.images is None:
            del written["images"]
        return written


class ShisenSho(BoardGame[ShisenShoState, Pair]):
    """Remove pairs of equal tiles connected by a path with few turns.

    Description:
        Shisen-Sho is also known as Four Rivers. A path runs along rows and columns, has at most `turns` turns, and
        passes only through empty cells of the board and of one ring around it. Adjacent tiles are always connected.
        Tiles do not move.

        The kinds of tile on a board are chosen at random; each has `copies` tiles. If rows x columns is not divisible
        by 4, one kind has 2 tiles; if there are too few classes of images, some have more. With `solvable`, the game
        draws a sequence of pairs of cells that can be removed in this order, adjacent cells only if necessary, and
        deals equal tiles to each pair. Otherwise tiles are shuffled until a pair can be connected.

    Observation:
        The board as an RGB image. Tiles show coloured shapes or, depending on `tiles`, handwritten digits, CIFAR-10, or
        your own images. Tiles with images are equal if the images have the same class.

    Action:
        `MultiDiscrete([rows, columns, rows, columns])`: row and column of the first and of the second tile, from 0, in
        any order. The tiles must be equal and connected by a path.

    Reward:
        1 for a removed pair; -1 for an illegal or unparsable answer.

    Episode end:
        The board is cleared, or no pair can be connected. `info` has the name of the `tile` and the ends and corners of
        the `path`. Metric: tiles left.
    """

    name = "shisensho"
    skills = ("perception", "search")
    title = "Shisen-Sho"
    answer = Cells(2, "the two tiles, in any order", verbs=("connect", "join", "match", "remove"))
    Config = ShisenShoConfig
    State = ShisenShoState
    illegal_reward = -1.0
    prompt_template = PROMPT_V1

    def start(self, rng: np.random.Generator) -> ShisenShoState:
        """Deal a board and, if tiles show images, choose the images."""
        state, c = super().start(rng), self.config
        if c.tiles == "shapes":
            return state
        return replace(state, images=self.tile_images.deal(state.board, c.variety, self._side, rng, c.bad_rows))

    def deal(self, rng: np.random.Generator) -> ShisenShoState:
        c, names = self.config, self.kinds
        chosen = [names[i] for i in rng.permutation(len(names))[: c.kinds]]
        tiles = [chosen[i // c.copies % len(chosen)] for i in range(c.rows * c.columns)]
        return ShisenShoState(boards.deal(self._finder, tiles, c.solvable, rng))

    def legal_actions(self, state: ShisenShoState) -> tuple[Pair, ...]:
        return boards.legal_actions(state.board, self.config.turns)

    def step(self, state: ShisenShoState, action: Pair, rng: np.random.Generator) -> Step[ShisenShoState]:
        path = self._path(state, action)
        board = with_cell(with_cell(state.board, path[0], (EMPTY,)), path[-1], (EMPTY,))
        after = replace(state, board=board)
        info = {"tile": state.board[action[0]][action[1]], "path": [list(cell) for cell in path]}
        return Step(after, 1.0, info)

    def ended(self, state: ShisenShoState) -> str | None:
        return boards.end_reason(state.board, self.config.turns)

    def best_action(self, state: ShisenShoState) -> Pair | None:
        """Return the first move of a plan that clears the board or removes as many tiles as possible."""
        return self._planner.move(state.board)

    def rule_action(self, state: ShisenShoState) -> Pair | None:
        """Return the first legal pair that `explain` lists; None if none exists."""
        tiles = boards.tile_groups(state.board)[0]
        legal = (pair for pair in boards.equal_pairs(state.board) if self._finder.path(*pair, tiles) is not None)
        first = next(legal, None)
        return None if first is None else (*self._finder.cell(first[0]), *self._finder.cell(first[1]))

    def metrics(self, state: ShisenShoState, infos: Infos) -> Metrics:
        return {"tiles left": float(sum(tile != EMPTY for line in state.board for tile in line))}

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Names of all tile kinds to choose from."""
        c = self.config
        return tile_kinds(c.colours, c.shapes) if c.tiles == "shapes" else self.tile_images.classes

    @property
    def tile_images(self) -> TileImages:
        """Images for the tiles, opened on first use."""
        c = self.config
        if c.tiles == "shapes":
            raise UsageError("tiles=shapes has no images")
        return images.tile_images(c.tiles, c.data, c.split)

    @cached_property
    def _finder(self) -> PathFinder:
        return boards.path_finder(self.config.rows, self.config.columns, self.config.turns)

    @cached_property
    def _planner(self) -> Planner[Board, Pair]:
        return Planner(lambda board: boards.plan(board, self.config.turns))

    @property
    def _side(self) -> int:
        return images.image_side(self.painter.geometry.cell)

    def cells(self, state: ShisenShoState) -> Grid:
        if state.images is None:
            return state.board
        return tuple(map(images.tiles_of_row, state.board, state.images.rows))

    @property
    def image_source(self) -> str | None:
        return images.SOURCES.get(self.config.tiles)

    def cell_words(self, cell: str | ImageTile) -> str:
        return cell.label if isinstance(cell, ImageTile) else str(cell)

    @property
    def style(self) -> Any:
        """How the board is drawn; images are not raised."""
        return self.config if self.config.tiles == "shapes" else self.config.model_copy(update={"relief": 0.0})

    def paint_cell(self, canvas: Canvas, cell: str | ImageTile, angle: float) -> None:
        c = self.config
        if isinstance(cell, ImageTile):
            images.paint_image(canvas, self.tile_images.image(cell.row, self._side), angle, theme=c.theme)
        else:
            paint_colour_shape(canvas, str(cell), angle, similarity=c.similarity, theme=c.theme)

    def prompt(self, state: ShisenShoState) -> str:
        c = self.config
        perception = _PERCEPTION.format(tile=self.kinds[0], empty=EMPTY)
        route = f"horizontally and vertically with at most {_count(c.turns, 'turn')}" if c.turns else "straight"
        return self.fill_prompt(perception, tiles=self._tile_rules, route=route)

    @cached_property
    def _tile_rules(self) -> str:
        c = self.config
        if c.tiles == "shapes":
            shapes, colours = SHAPE_NAMES[: c.shapes], COLOUR_NAMES[: c.colours]
            return _SHAPES.format(shapes=", ".join(shapes), colours=", ".join(colours))
        others = len(self.kinds) - MAX_LISTED
        classes = ", ".join(self.kinds[:MAX_LISTED]) + (f" and {others} more" if others > 0 else "")
        return _IMAGES.format(kind=images.KINDS[c.tiles], classes=classes)

    def explain(self, state: ShisenShoState, action: Pair) -> str:
        """List pairs of equal tiles, with the number of turns in their path, up to the chosen pair.

        Each tile name comes before its coordinates, so that a model can look them up by name.
        """
        equal = boards.equal_pairs(state.board)
        first, second = sorted(map(self._finder.square, self.answer.cells(action)))
        before = equal[: min(equal.index((first, second)), MAX_EXPLAINED - 1)]
        chosen = f"{state.board[action[0]][action[1]]}, {self.answer.format(action)}"
        return f"{self._list_in_words(state, [*before, (first, second)])} I choose {chosen}."

    def explain_illegal(self, state: ShisenShoState, action: Pair, error: IllegalAction) -> str:
        """List all pairs before a guess, so that models learn how a failed search ends."""
        pairs = boards.equal_pairs(state.board)[:MAX_EXPLAINED]
        return f"{self._list_in_words(state, pairs)} I choose none of them and guess {self.answer.format(action)}."

    def check_reasoning(self, state: ShisenShoState, text: str) -> list[bool]:
        """Check each pair of tiles with the turns of its path, and whether the chosen pair can be removed."""
        tiles, checks = boards.tile_groups(state.board)[0], list[bool]()
        for match in _STATEMENT.finditer(text):
            name, first, second = match["name"], *self._cells_in(match["cells"])
            shown = [state.board[row][column] for row, column in (first, second) if self.inside((row, column))]
            if shown != [name, name] or name == EMPTY or first == second:
                checks.append(False)
                continue
            squares = self._finder.square(first), self._finder.square(second)
            pair = self._pair_in_words(state, *squares, tiles)
            checks.append(not pair.endswith("none") if match["chosen"] else match[0] == pair)
        return checks

    def check_state(self, state: ShisenShoState) -> None:
        super().check_state(state)
        if state.images is not None:
            self.tile_images.check(state.images, self._side)

    def _path(self, state: ShisenShoState, action: Pair) -> list[Cell]:
        """Return the path of a legal action: its first cell, its corners and its last cell."""
        cells = self.answer.cells(action)
        tiles = [state.board[row][column] for row, column in cells]
        if cells[0] == cells[1]:
            raise IllegalAction(f"both coordinates are the same cell {self.where(cells[0])}")
        for cell, tile in zip(cells, tiles):
            if tile == EMPTY:
                raise IllegalAction(f"the cell {self.where(cell)} is empty")
        if tiles[0] != tiles[1]:
            raise IllegalAction(
                f"the tiles differ: {tiles[0]} at {self.where(cells[0])}, {tiles[1]} at {self.where(cells[1])}"
            )
        start, end = map(self._finder.square, cells)
        path = self._finder.path(start, end, boards.tile_groups(state.board)[0])
        if path is None:
            turns = self.config.turns
            kind = f"path with at most {_count(turns, 'turn')}" if turns else "straight path"
            raise IllegalAction(
                f"no {kind} connects the {tiles[0]} at {self.where(cells[0])} and the one at {self.where(cells[1])}"
            )
        return path

    def _list_in_words(self, state: ShisenShoState, pairs: Sequence[tuple[Square, Square]]) -> str:
        tiles = boards.tile_groups(state.board)[0]
        listed = "; ".join(self._pair_in_words(state, start, end, tiles) for start, end in pairs)
        return f"Equal tiles and the turns of the path between them: {listed}."

    def _pair_in_words(self, state: ShisenShoState, start: Square, end: Square, tiles: Bitboard) -> str:
        """Describe two equal tiles and the number of turns in their path, such as `red circle, (0, 1) (2, 1) 2`.

        If no path connects them, `none` replaces the number of turns.
        """
        first, second = map(self._finder.cell, (start, end))
        path = self._finder.path(start, end, tiles)
        turns = "none" if path is None else len(path) - 2
        return f"{state.board[first[0]][first[1]]}, {self.where(first)} {self.where(second)} {turns}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
