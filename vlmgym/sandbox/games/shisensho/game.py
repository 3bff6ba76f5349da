"""Shisen-Sho: take equal tiles off the board in pairs that a path of few turns joins."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from heapq import nsmallest
from itertools import chain, combinations, cycle, islice, pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from pydantic import SerializerFunctionWrapHandler, field_validator, model_serializer

from vlmgym.errors import GenerationError, IllegalAction, StateError, UsageError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.board_game import BOARD_PERCEPTION, BoardConfig, BoardGame
from vlmgym.sandbox.core.config import Dial, Levels, config_field, setting
from vlmgym.sandbox.core.coordinates import Pair
from vlmgym.sandbox.core.game import Step
from vlmgym.sandbox.games.shisensho.drawing import ImageTile, image_side, paint_image
from vlmgym.sandbox.games.shisensho.image_tiles import DealtImages, TileImages, tile_images
from vlmgym.sandbox.games.shisensho.paths import Cell, Paths, Place, Places, paths
from vlmgym.sandbox.games.shisensho.solver import best_move
from vlmgym.sandbox.games.tiles.drawing import paint_colour_shape
from vlmgym.sandbox.games.tiles.names import COLOUR_NAMES, EMPTY, MAX_COLOURS, MAX_SHAPES, SHAPE_NAMES, kinds
from vlmgym.sandbox.rendering.board import Cells
from vlmgym.sandbox.rendering.canvas import Canvas

Board = tuple[tuple[str, ...], ...]

DEALS = 1000
"""How often a board is dealt until it meets its constraints."""

PROMPT_V1 = """\
This is the board of the game Shisen-Sho with {rows} rows and {columns} columns, rows counted from {origin} at the top \
and columns from {origin} at the left. {tiles} off the board if a path joins them: it runs up, down, left and right, \
{turns}, through empty cells only, and it may leave the board and run along just outside its edges. Tiles next to each \
other are always joined. Tiles do not move. Any other pair of cells is illegal. Clear the board; the game is over when \
no pair can be joined.
Actions: the coordinates (row, column) of the two tiles, in any order.
{form}"""

_SHAPES = "A tile shows a shape ({shapes}) in a colour ({colours}). A move takes two tiles of the same shape and colour"
_IMAGES = "A tile shows {kind} ({classes}). A move takes two tiles of the same kind, even if their images differ,"
_KINDS = {"digits": "a handwritten digit", "cifar10": "a photograph", "folder": "an image of one of several kinds"}
MOST_CANDIDATES = 8
"""Pairs of equal tiles that an explanation tells of."""
MOST_LISTED = 100
"""Classes of images that a prompt lists."""

_PERCEPTION = "the board, one line a row, the tiles apart by commas, for instance {tile}; {empty} for an empty cell"


class ShisenShoConfig(BoardConfig):
    """Difficulty of Shisen-Sho.

    `colours` and `shapes` are perceptual: how many kinds of tile a board has is fixed by its size and `copies`, and
    with more colours and shapes to take them from they are only harder to tell apart, or to name.

    On tiles with images, `colours`, `shapes` and `similarity` have no meaning; `variety` has one on these alone.
    Where there are fewer classes than kinds of tile, the classes have more tiles.
    """

    rows: int = config_field("reasoning", 6, "Rows of the board; rows x columns is even.", ge=2, le=16)
    columns: int = config_field("reasoning", 6, "Columns of the board.", ge=2, le=16)
    copies: Literal[2, 4] = config_field(
        "reasoning", 4, "Equal tiles of a kind; one kind has 2 if 4 do not divide rows x columns."
    )
    turns: int = config_field("reasoning", 2, "Turns that a path may have.", ge=0, le=4)
    solvable: bool = config_field("reasoning", True, "Deal only boards that can be cleared; False: tiles at random.")
    colours: int = config_field("perception", 6, "Colours that tiles are taken from.", ge=1, le=MAX_COLOURS)
    shapes: int = config_field("perception", 6, "Shapes that tiles are taken from.", ge=1, le=MAX_SHAPES)
    tiles: Literal["shapes", "digits", "cifar10", "folder"] = config_field(
        "perception",
        "shapes",
        "What tiles show: shapes in colours, or images that match by class; folder: those of data.",
    )
    variety: int = config_field("perception", 256, "Different images of a class on a board, at most.", ge=1, le=256)
    data: str | None = setting(
        None, "Images of your own: a folder of class folders, any data with images and labels, or CIFAR-10's archive."
    )
    split: str | None = setting(None, "Which split of the images; CIFAR-10 has test (if none is named) and train.")
    bad_rows: Literal["skip", "fail"] = setting(
        "skip", "Whether an image that cannot be read is passed over, which the position tells, or an error."
    )

    levels: ClassVar[Mapping[Dial, Levels]] = {
        "perception": {
            level: {**BOARD_PERCEPTION[level], "colours": colours, "shapes": shapes, "variety": variety}
            for level, (colours, shapes, variety) in {
                1: (5, 5, 1),
                2: (5, 6, 2),
                3: (6, 6, 256),
                4: (7, 7, 256),
                5: (8, 8, 256),
            }.items()
        },
        "reasoning": {
            1: {"rows": 4, "columns": 4},
            2: {"rows": 4, "columns": 6},
            3: {},
            4: {"rows": 8, "columns": 8},
            5: {"rows": 10, "columns": 10},
        },
    }

    @field_validator("theme", mode="before")
    @classmethod
    def _theme_is_no_image(cls, value: Any) -> Any:
        """Tell who looks for images here where they are: `theme` is the colours of all games on a grid."""
        if value in ("shapes", "digits", "cifar10", "folder"):
            raise ValueError(f"theme is the colours of board and page, light or dark; tiles={value} chooses the tiles")
        return value

    def model_post_init(self, context: object) -> None:
        """Refuse an odd number of cells, too few colours and shapes for the kinds of tile, and data that do not fit."""
        cells = self.rows * self.columns
        if cells % 2:
            raise ValueError(f"{self.rows} x {self.columns} cells cannot be paired: rows x columns is even")
        if self.tiles == "folder" and self.data is None:
            raise ValueError("tiles=folder needs data=, a folder of class folders")
        for name, value in (("data", self.data), ("split", self.split)):
            if self.tiles in ("shapes", "digits") and value is not None:
                raise ValueError(f"{name} is for tiles=folder and tiles=cifar10, not for tiles={self.tiles}")
        if self.tiles == "shapes" and self.kinds > self.colours * self.shapes:
            raise ValueError(
                f"{self.rows} x {self.columns} cells with {self.copies} tiles of a kind need {self.kinds} kinds, "
                f"but {self.colours} colours x {self.shapes} shapes make {self.colours * self.shapes}"
            )

    @property
    def kinds(self) -> int:
        """How many kinds of tile a board has."""
        return -(-self.rows * self.columns // self.copies)


@dataclass(frozen=True, slots=True)
class ShisenShoState:
    """A position: the names of the tiles, `empty` where there is none, and the seed of the image's variation.

    Tiles with images are named by their class, and `images` says which they show.
    """

    board: Board
    variation_seed: int = 0
    images: DealtImages | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Positions of shapes are written without `images`."""
        written: dict[str, Any] = write(self)
        if self.images is None:
            del written["images"]
        return written


class ShisenSho(BoardGame[ShisenShoState, Pair]):
    """Shisen-Sho, also known as Four Rivers.

    Action space: `MultiDiscrete([rows, columns, rows, columns])`: row and column of two tiles, from 0, in any order.
    Illegal are a cell out of range, an empty cell, twice the same cell, two different tiles, and two tiles that no path
    joins. A path runs along rows and columns through empty cells and one ring of cells around the board, and has at
    most `turns` turns; neighbours are always joined.
    Observation: the board as an image. Tiles show coloured shapes, or with `tiles` images: handwritten digits,
    CIFAR-10, or a folder of the user's. Images match by class, and those of a class differ.
    Reward: 1 for a pair taken off the board; -1 for an illegal or unparsable turn.
    Start: a full board. Its kinds of tile are drawn at random from colours x shapes, or from the classes of images,
    and each has `copies` tiles; where 4 do not divide rows x columns, one kind has 2, and where there are too few
    classes, some have more. With `solvable`, pairs of places are taken off a blank board in a
    random order by the rules, neighbours only where nothing else can be joined, and a kind is put on every one or two
    pairs: the board can be cleared in that order. Otherwise tiles are put anywhere at random, and again until a pair
    can be joined.
    End: the board is cleared, or no pair can be connected.
    Metric: the tiles left.

    Version history: v0, first.
    """

    name = "shisensho"
    answer_verbs = ("connect", "join", "match", "remove")
    version = 0
    Config = ShisenShoConfig
    State = ShisenShoState
    illegal_reward = -1.0
    prompt_template: ClassVar[str] = PROMPT_V1

    @cached_property
    def action_space(self) -> spaces.MultiDiscrete:
        """Row and column of the first tile and of the second."""
        c = self.config
        return spaces.MultiDiscrete([c.rows, c.columns, c.rows, c.columns])

    def start(self, rng: np.random.Generator) -> ShisenShoState:
        """A full board.

        Raises:
            GenerationError: No board that meets the constraints was dealt in `DEALS` tries.
            UsageError: The images cannot be opened, or are bad.
        """
        c, names = self.config, self.kinds
        chosen = [names[i] for i in rng.permutation(len(names))[: self.config.kinds]]
        deal = self._deal_solvable if self.config.solvable else self._deal_anyhow
        for _ in range(DEALS):
            if (board := deal(chosen, rng)) is not None:
                state = ShisenShoState(board, int(rng.integers(2**32)))
                if c.tiles == "shapes":
                    return state
                return replace(state, images=self.tile_images.deal(board, c.variety, self._side, rng, c.bad_rows))
        wanted = "that can be cleared" if self.config.solvable else "on which a pair can be joined"
        raise GenerationError(f"none of {DEALS} boards of {self.config!r} is one {wanted}")

    def legal_actions(self, state: ShisenShoState) -> tuple[Pair, ...]:
        """Every pair that a path joins, in both orders, sorted."""
        return _legal_actions(state.board, self.config.turns)

    def step(self, state: ShisenShoState, action: Pair, rng: np.random.Generator) -> Step[ShisenShoState]:
        """Take two tiles off the board; info: the `tile` and the cells of the `path`, its ends and corners."""
        path = self._path(state, action)
        board = list(state.board)
        for row, column in (path[0], path[-1]):
            board[row] = board[row][:column] + (EMPTY,) + board[row][column + 1 :]
        after = ShisenShoState(tuple(board), state.variation_seed, state.images)
        info = {"tile": state.board[action[0]][action[1]], "path": [list(cell) for cell in path]}
        return Step(after, 1.0, self.ended(after) is not None, info)

    def ended(self, state: ShisenShoState) -> str | None:
        """`cleared`, `no pair can be connected`, or None."""
        return _ended(state.board, self.config.turns)

    def best_action(self, state: ShisenShoState) -> Pair | None:
        """The first move of a plan to clear the board, or to remove many tiles where none is found."""
        return best_move(state.board, self.config.turns)

    def metrics(self, state: ShisenShoState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """The number of tiles left."""
        return {"tiles left": float(sum(tile != EMPTY for line in state.board for tile in line))}

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The names of all tiles there are, which a board has some of."""
        c = self.config
        return kinds(c.colours, c.shapes) if c.tiles == "shapes" else self.tile_images.classes

    @property
    def tile_images(self) -> TileImages:
        """The images that tiles may show; opened when they are first needed.

        Raises:
            UsageError: They cannot be opened, or tiles show shapes.
        """
        c = self.config
        if c.tiles == "shapes":
            raise UsageError("tiles=shapes has no images")
        return tile_images(c.tiles, c.data, c.split)

    @property
    def _side(self) -> int:
        return image_side(self.painter.geometry.cell)

    def cells(self, state: ShisenShoState) -> Cells:
        """The names of the tiles, with images as `ImageTile`."""
        if state.images is None:
            return state.board
        return tuple(map(_image_tiles, state.board, state.images.rows))

    def cell_words(self, cell: Hashable) -> str:
        """The name of a tile."""
        return cell.label if isinstance(cell, ImageTile) else str(cell)

    def variation_seed(self, state: ShisenShoState) -> int:
        """As drawn at the start."""
        return state.variation_seed

    def paint_cell(self, canvas: Canvas, cell: Hashable, angle: float) -> None:
        """A tile with a coloured shape or an image."""
        c = self.config
        if isinstance(cell, ImageTile):
            paint_image(canvas, self.tile_images.square(cell.row, self._side), angle, theme=c.theme)
        else:
            paint_colour_shape(canvas, str(cell), angle, similarity=c.similarity, theme=c.theme)

    def prompt(self, state: ShisenShoState) -> str:
        """Rules, actions and response form."""
        c = self.config
        return self.prompt_template.format(
            rows=c.rows,
            columns=c.columns,
            origin=c.origin,
            tiles=self._told_tiles,
            turns=f"with at most {_count(c.turns, 'turn')}" if c.turns else "in a straight line",
            form=response_format.INSTRUCTIONS_V1.format(
                perception=_PERCEPTION.format(tile=self.kinds[0], empty=EMPTY),
                answer="(row, column) (row, column)",
            ),
        )

    @cached_property
    def _told_tiles(self) -> str:
        c = self.config
        if c.tiles == "shapes":
            shapes, colours = SHAPE_NAMES[: c.shapes], COLOUR_NAMES[: c.colours]
            return _SHAPES.format(shapes=", ".join(shapes), colours=", ".join(colours))
        others = len(self.kinds) - MOST_LISTED
        classes = ", ".join(self.kinds[:MOST_LISTED]) + (f" and {others} more" if others > 0 else "")
        return _IMAGES.format(kind=_KINDS[c.tiles], classes=classes)

    def explain(self, state: ShisenShoState, action: Pair) -> str:
        """Which tiles match, whether paths join them, and how that of a legal action runs."""
        candidates = self._candidates(state)
        try:
            path = self._path(state, action)
        except IllegalAction:
            return f"{candidates} {super().explain(state, action)}"
        first, second = (self.where(cell) for cell in (path[0], path[-1]))
        legs = [_leg(start, end) for start, end in pairwise(path)]
        turns = _count(len(legs) - 1, "turn") if len(legs) > 1 else "no turn"
        tile = state.board[action[0]][action[1]]
        return (
            f"{candidates} I choose the {tile} at {first} and at {second}. "
            f"A path with {turns} joins them: {', '.join(legs)}."
        )

    def check_state(self, state: ShisenShoState) -> None:
        """Refuse a board of another size, with an unknown tile, or with other images than it was dealt with."""
        self.check_board_size(state.board)
        c = self.config
        if (state.images is None) != (c.tiles == "shapes"):
            raise StateError(f"a position of shisensho with tiles={c.tiles} does not have these images")
        if state.images is not None:
            self.tile_images.check(state.board, state.images, self._side)
            return
        known = {EMPTY, *kinds(c.colours, c.shapes)}
        for line in state.board:
            for tile in line:
                if tile not in known:
                    raise StateError(
                        f"invalid state of shisensho: there is no tile {tile!r} with {c.colours} colours and "
                        f"{c.shapes} shapes"
                    )

    def _path(self, state: ShisenShoState, action: Pair) -> list[Cell]:
        """The path of a legal action: its first cell, its corners and its last cell."""
        self.check_action_type(action)
        cells = action[:2], action[2:]
        tiles = []
        for row, column in cells:
            if not (0 <= row < self.config.rows and 0 <= column < self.config.columns):
                raise IllegalAction(
                    f"{self.where((row, column))} is outside the board of {self.config.rows} rows and "
                    f"{self.config.columns} columns"
                )
            tiles.append(state.board[row][column])
        if cells[0] == cells[1]:
            raise IllegalAction(f"both coordinates are the same cell {self.where(cells[0])}")
        for cell, tile in zip(cells, tiles):
            if tile == EMPTY:
                raise IllegalAction(f"the cell {self.where(cell)} is empty")
        if tiles[0] != tiles[1]:
            raise IllegalAction(
                f"the tiles differ: {tiles[0]} at {self.where(cells[0])}, {tiles[1]} at {self.where(cells[1])}"
            )
        finder = _paths(state.board, self.config.turns)
        path = finder.path(finder.place(cells[0]), finder.place(cells[1]), _groups(state.board)[0])
        if path is None:
            most = f"at most {_count(self.config.turns, 'turn')}" if self.config.turns else "no turn"
            raise IllegalAction(
                f"no path with {most} joins the {tiles[0]} at {self.where(cells[0])} and the one at "
                f"{self.where(cells[1])}"
            )
        return path

    def _candidates(self, state: ShisenShoState) -> str:
        """The first pairs of equal tiles in reading order, each with whether it is legal."""
        finder, legal = _paths(state.board, self.config.turns), set(self.legal_actions(state))
        equal = chain.from_iterable(
            combinations(sorted(map(finder.cell, group)), 2) for group in _groups(state.board)[1]
        )
        told = [
            f"{self.where(first)} {self.where(second)} {'yes' if first + second in legal else 'no'}"
            for first, second in nsmallest(MOST_CANDIDATES, equal)
        ]
        return f"Equal tiles, and whether a path joins them: {'; '.join(told)}."

    def _deal_solvable(self, chosen: list[str], rng: np.random.Generator) -> Board | None:
        """A board that can be cleared by construction; None if the removal of blank tiles came to a dead end."""
        c = self.config
        finder = paths(c.rows, c.columns, c.turns)
        pairs = _clear_blank(finder, rng)
        if pairs is None:
            return None
        tile_at = {}
        for number, index in enumerate(rng.permutation(len(pairs))):
            tile = chosen[number * 2 // c.copies % len(chosen)]
            tile_at.update(dict.fromkeys(pairs[index], tile))
        return tuple(tuple([tile_at[place] for place in line]) for line in finder.places)

    def _deal_anyhow(self, chosen: list[str], rng: np.random.Generator) -> Board | None:
        """Tiles at random places; None if no pair can be joined."""
        c = self.config
        tiles = list(islice(cycle(tile for tile in chosen for _ in range(c.copies)), c.rows * c.columns))
        order = rng.permutation(len(tiles)).reshape(c.rows, c.columns)
        board = tuple(tuple(tiles[i] for i in line) for line in order)
        return board if _ended(board, c.turns) is None else None


def _clear_blank(finder: Paths, rng: np.random.Generator) -> list[tuple[Place, Place]] | None:
    """Pairs of places that take all tiles off a board in this order, whatever is on them; None at a dead end.

    Equal tiles side by side are found at a glance, and pairs chosen without care are mostly such: neighbours are
    paired only where nothing else can be joined.
    """
    left = list(chain.from_iterable(finder.places))
    tiles = sum(1 << place for place in left)
    pairs = []
    while left:
        order = [left[i] for i in rng.permutation(len(left)).tolist()]
        candidates = chain(
            ((place, finder.partners(place, tiles) & ~finder.neighbours[place]) for place in order),
            ((place, finder.partners(place, tiles)) for place in order),
        )
        first, joined = next((entry for entry in candidates if entry[1]), (0, 0))
        if not joined:
            return None
        seconds = [place for place in left if joined >> place & 1]
        second = seconds[int(rng.integers(len(seconds)))]
        pairs.append((first, second))
        tiles ^= 1 << first | 1 << second
        left.remove(first)
        left.remove(second)
    return pairs


@lru_cache(maxsize=4096)
def _image_tiles(names: tuple[str, ...], rows: tuple[int, ...]) -> tuple[Hashable, ...]:
    """The cells of one row of the board; kept, because a move leaves most of them as they are."""
    return tuple(name if name == EMPTY else ImageTile(name, row) for name, row in zip(names, rows))


def _paths(board: Board, turns: int) -> Paths:
    return paths(len(board), len(board[0]), turns)


@lru_cache(maxsize=4096)
def _groups(board: Board) -> tuple[Places, list[list[Place]]]:
    """The places that hold a tile, and those of equal tiles."""
    groups = _paths(board, 0).groups(board, EMPTY)
    return sum([1 << place for group in groups for place in group]), groups


@lru_cache(maxsize=4096)
def _legal_actions(board: Board, turns: int) -> tuple[Pair, ...]:
    finder = _paths(board, turns)
    pairs = [(finder.cell(first), finder.cell(second)) for first, second in finder.pairs(*_groups(board))]
    return tuple(sorted(pair for first, second in pairs for pair in (first + second, second + first)))


@lru_cache(maxsize=4096)
def _ended(board: Board, turns: int) -> str | None:
    tiles, groups = _groups(board)
    if not tiles:
        return "cleared"
    pair = next(_paths(board, turns).pairs(tiles, groups), None)
    return "no pair can be connected" if pair is None else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _leg(start: Cell, end: Cell) -> str:
    """A straight part of a path in words, for instance `2 up`."""
    down, right = end[0] - start[0], end[1] - start[1]
    way = ("down" if down > 0 else "up") if down else ("right" if right > 0 else "left")
    return f"{abs(down + right)} {way}"
