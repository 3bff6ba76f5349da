"""Swap: exchange two adjacent tiles to line up three equal ones; they vanish, tiles fall, new ones appear."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from vlmgym.errors import GenerationError, IllegalAction, StateError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_board_perception
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.coordinates import Pair
from vlmgym.sandbox.core.game import Step
from vlmgym.sandbox.games.swap.board import RUN, SwapRules, Tiles
from vlmgym.sandbox.games.swap.solver import search
from vlmgym.sandbox.games.tiles.drawing import paint_colour_shape
from vlmgym.sandbox.games.tiles.names import COLOUR_NAMES, MAX_COLOURS, MAX_SHAPES, SHAPE_NAMES, kinds
from vlmgym.sandbox.rendering.canvas import Canvas

Board = tuple[tuple[int, ...], ...]

FEWEST_KINDS = 3
"""With two kinds, more than half of the cascades on 8 x 8 are not over after 1000 rounds."""
LONGEST_CASCADE = 200
"""Rounds after which the board is dealt anew; the longest of 2000 with 3 kinds on 16 x 16 had 97."""
DEALS = 10_000
"""Tries to deal a board; the hardest one, 3 x 3 with 64 kinds, takes 160 on average."""
RESHUFFLES = 100
"""Tries to permute the tiles of a board before a fresh one is dealt."""

PROMPT_V1 = """\
This is the board of a match-3 game with {rows} rows and {columns} columns, rows counted from {origin} at the top and \
columns from {origin} at the left. Each tile has a colour ({colours}) and a shape ({shapes}); two tiles are equal if \
both are. A move swaps two tiles next to each other in a row or in a column. It is legal only if afterwards three or \
more equal tiles stand in an unbroken line in a row or in a column. All such tiles vanish, the tiles above fall, new \
random tiles appear from the top, and lines made so vanish as well. When no legal move is left the tiles are \
reshuffled. Every legal move scores 1, every other answer -1.
Actions: two coordinates (row, column) of the tiles to swap, for instance {example}; their order does not matter.
{form}"""

_PERCEPTION = (
    "the board, one line a row, the tiles apart by commas, each as its colour and shape, for instance red circle"
)


class SwapConfig(BoardConfig):
    """Difficulty of Swap. The larger the board, the more there is to look at.

    `colours` and `shapes` are reasoning config fields: with more kinds of tile fewer swaps are legal, which are
    harder to find.
    """

    rows: int = config_field("reasoning", 8, "Rows of the board.", ge=3, le=16)
    columns: int = config_field("reasoning", 8, "Columns of the board.", ge=3, le=16)
    colours: int = config_field("reasoning", 4, "Colours of tiles; kinds are colours x shapes.", ge=1, le=MAX_COLOURS)
    shapes: int = config_field("reasoning", 3, "Shapes of tiles; kinds are colours x shapes.", ge=1, le=MAX_SHAPES)

    levels = with_board_perception(
        {
            1: {"rows": 5, "columns": 5, "colours": 2, "shapes": 2},
            2: {"rows": 6, "columns": 6, "colours": 3, "shapes": 2},
            3: {},
            4: {"rows": 9, "columns": 9, "colours": 4, "shapes": 4},
            5: {"rows": 10, "columns": 10, "colours": 5, "shapes": 5},
        }
    )

    @property
    def kinds(self) -> int:
        """How many different tiles there are."""
        return self.colours * self.shapes

    def model_post_init(self, context: object) -> None:
        """Refuse too few kinds."""
        if self.kinds < FEWEST_KINDS:
            raise ValueError(
                f"{self.colours} colours x {self.shapes} shapes make {self.kinds} kinds of tiles; "
                f"at least {FEWEST_KINDS} are needed"
            )


@dataclass(frozen=True, slots=True)
class SwapState:
    """A position.

    Attributes:
        board: The tiles by row and column, each colour * shapes + shape, 0 to kinds - 1.
        variation_seed: Seed of the image's variation.
    """

    board: Board
    variation_seed: int = 0


class Swap(BoardGame[SwapState, Pair]):
    """A match-3 game: swap two adjacent tiles so that three or more equal ones stand in a line.

    Action space: `MultiDiscrete([rows, columns, rows, columns])`: row 1, column 1, row 2, column 2, counted from 0. The
    order of the two does not matter. A move is legal if it makes a run of three or more equal tiles in a line.
    Observation: the board as an image.
    Rules: all tiles of all runs vanish at once, the tiles above fall, and new tiles, each kind as likely, appear from
    the top; so on until there are no runs. If no legal move is left then, the tiles are reshuffled; if no order of them
    was found that has no run and a legal move, or the cascade did not end in 200 rounds, a fresh board is dealt.
    Reward: 1 for a legal move; -1 for an illegal or unparsable turn.
    Start: a board without runs and with a legal move.
    End: never; the turn limit of whoever runs the episode ends it.
    Info of a step: `cleared` tiles, rounds of the `cascade`, `reshuffled`, and `redealt` (a fresh board).
    Metrics: tiles cleared, longest cascade, reshuffles.

    Version history: v0, first.
    """

    name = "swap"
    answer_verbs = ("swap",)
    version = 0
    Config = SwapConfig
    State = SwapState
    illegal_reward = -1.0
    prompt_template: ClassVar[str] = PROMPT_V1

    @cached_property
    def action_space(self) -> spaces.MultiDiscrete:
        """Row 1, column 1, row 2, column 2."""
        c = self.config
        return spaces.MultiDiscrete([c.rows, c.columns, c.rows, c.columns])

    def start(self, rng: np.random.Generator) -> SwapState:
        """A board without runs and with a legal move."""
        return SwapState(self._board(self._deal(rng)), int(rng.integers(2**32)))

    def legal_actions(self, state: SwapState) -> tuple[Pair, ...]:
        """All swaps that make a run, in both orders, sorted."""
        actions = self.rules.actions
        return tuple([actions[index] for index in self.rules.legal_swaps(_tiles(state.board))])

    def step(self, state: SwapState, action: Pair, rng: np.random.Generator) -> Step[SwapState]:
        """Swap, let runs vanish until there are none, and reshuffle if no legal move is left."""
        tiles = self._swapped(state.board, action)
        columns = self.config.columns
        swapped = [row * columns + column for row, column in (action[:2], action[2:])]
        cascade = self.rules.cascade(tiles, swapped, lambda count: self._random_tiles(count, rng), LONGEST_CASCADE)
        stuck = not (cascade.settled and self.rules.has_swap(tiles))
        redealt = False
        if stuck:
            reshuffled = self._reshuffle(tiles, rng) if cascade.settled else None
            redealt = reshuffled is None
            tiles = self._deal(rng) if reshuffled is None else reshuffled
        info = {
            "cleared": cascade.cleared,
            "cascade": cascade.rounds,
            "reshuffled": stuck and not redealt,
            "redealt": redealt,
        }
        return Step(SwapState(self._board(tiles), state.variation_seed), 1.0, False, info)

    def ended(self, state: SwapState) -> str | None:
        """Never: there is always a legal move."""
        return None

    def best_action(self, state: SwapState) -> Pair | None:
        """The swap that is expected to clear most tiles."""
        swap = search(self.rules, _tiles(state.board), self.config.kinds).swap
        return None if swap is None else self.rules.actions[swap]

    def metrics(self, state: SwapState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """Tiles cleared, rounds of the longest cascade, and how often the board was reshuffled or dealt anew."""
        played = [info for info in infos if info]
        return {
            "tiles cleared": float(sum(info["cleared"] for info in played)),
            "longest cascade": float(max((info["cascade"] for info in played), default=0)),
            "reshuffles": float(sum(info["reshuffled"] or info["redealt"] for info in played)),
        }

    def cells(self, state: SwapState) -> Board:
        """The tiles' kinds."""
        return state.board

    def variation_seed(self, state: SwapState) -> int:
        """As drawn at the start."""
        return state.variation_seed

    def paint_cell(self, canvas: Canvas, cell: Hashable, angle: float) -> None:
        """A tile with a coloured shape."""
        paint_colour_shape(canvas, self._names[cell], angle, similarity=self.config.similarity, theme=self.config.theme)

    def cell_words(self, cell: Hashable) -> str:
        """Colour and shape, for instance `red circle`."""
        return self._names[cell]

    def prompt(self, state: SwapState) -> str:
        """Rules, actions and response form."""
        c = self.config
        return self.prompt_template.format(
            rows=c.rows,
            columns=c.columns,
            origin=c.origin,
            colours=", ".join(COLOUR_NAMES[: c.colours]),
            shapes=", ".join(SHAPE_NAMES[: c.shapes]),
            example=self.format((0, 0, 0, 1)),
            form=response_format.INSTRUCTIONS_V1.format(perception=_PERCEPTION, answer="(row, column) (row, column)"),
        )

    def explain(self, state: SwapState, action: Pair) -> str:
        """Which runs the swap makes, or why it is illegal."""
        try:
            tiles = self._swapped(state.board, action)
        except IllegalAction as error:
            return f"The move {self.format(action)} is illegal: {error}."
        row1, column1, row2, column2 = action
        one, other = self.cell_words(state.board[row1][column1]), self.cell_words(state.board[row2][column2])
        runs = " and ".join(self._run_in_words(tiles, run) for run in self.rules.runs(tiles))
        return (
            f"Swapping the {one} at {self.where((row1, column1))} with the {other} at {self.where((row2, column2))} "
            f"lines up {runs}."
        )

    def check_state(self, state: SwapState) -> None:
        """Refuse a board of another size, with unknown tiles, with runs, or without a legal move."""
        self.check_board_size(state.board)
        tiles, last = _tiles(state.board), self.config.kinds - 1
        if unknown := [tile for tile in tiles if not 0 <= tile <= last]:
            raise StateError(f"invalid state of swap: {unknown[0]} is no tile; tiles are 0 to {last}")
        if self.rules.matched(tiles):
            raise StateError("invalid state of swap: the board has a run of three equal tiles")
        if not self.rules.has_swap(tiles):
            raise StateError("invalid state of swap: the board has no legal move")

    @cached_property
    def rules(self) -> SwapRules:
        """The rules on boards of this size."""
        return SwapRules(self.config.rows, self.config.columns)

    @cached_property
    def _names(self) -> Mapping[Hashable, str]:
        return dict(enumerate(kinds(self.config.colours, self.config.shapes)))

    def _swapped(self, board: Board, action: Pair) -> Tiles:
        """The tiles right after a legal swap.

        Raises:
            IllegalAction: The swap is out of range or makes no run.
        """
        self.check_action_type(action)
        row1, column1, row2, column2 = action
        rows, columns = self.config.rows, self.config.columns
        for row, column in ((row1, column1), (row2, column2)):
            if not (0 <= row < rows and 0 <= column < columns):
                raise IllegalAction(f"{self.where((row, column))} is outside the board of {rows} x {columns}")
        distance = abs(row1 - row2) + abs(column1 - column2)
        if distance == 0:
            raise IllegalAction(f"{self.where((row1, column1))} is named twice; a swap takes two cells")
        if distance > 1:
            raise IllegalAction(f"{self._both(action)} are not next to each other in a row or in a column")
        first, second = board[row1][column1], board[row2][column2]
        if first == second:
            raise IllegalAction(f"swapping {self._both(action)} changes nothing: both are a {self.cell_words(first)}")
        tiles = _tiles(board)
        a, b = row1 * columns + column1, row2 * columns + column2
        tiles[a], tiles[b] = second, first
        if not (self.rules.completes_run(tiles, a) or self.rules.completes_run(tiles, b)):
            raise IllegalAction(f"swapping {self._both(action)} makes no run of three equal tiles")
        return tiles

    def _both(self, action: Pair) -> str:
        return f"{self.where(action[:2])} and {self.where(action[2:])}"

    def _random_tiles(self, count: int, rng: np.random.Generator) -> Tiles:
        tiles: Tiles = rng.integers(self.config.kinds, size=count).tolist()
        return tiles

    def _deal(self, rng: np.random.Generator) -> Tiles:
        """A fresh board: random tiles in an order without runs, until there is a legal move."""
        c = self.config
        for _ in range(DEALS):
            tiles = self.rules.arrange(self._random_tiles(c.rows * c.columns, rng))
            if tiles is not None and self.rules.has_swap(tiles):
                return tiles
        raise GenerationError(
            f"swap: no board of {c.rows} x {c.columns} with {c.kinds} kinds of tiles that has no run and a legal move "
            f"was found in {DEALS} tries"
        )

    def _reshuffle(self, tiles: Tiles, rng: np.random.Generator) -> Tiles | None:
        """The same tiles in an order without runs and with a legal move, or None if none was found."""
        if max(map(tiles.count, set(tiles))) < RUN:
            return None
        for _ in range(RESHUFFLES):
            arranged = self.rules.arrange(rng.permutation(tiles).tolist())
            if arranged is not None and self.rules.has_swap(arranged):
                return arranged
        return None

    def _board(self, tiles: Tiles) -> Board:
        columns = self.config.columns
        return tuple([tuple(tiles[start : start + columns]) for start in range(0, len(tiles), columns)])

    def _run_in_words(self, tiles: Tiles, run: tuple[int, ...]) -> str:
        """For instance `3 red circle tiles in row 2, columns 1 to 3`."""
        c = self.config
        (row, column), (last_row, last_column) = divmod(run[0], c.columns), divmod(run[-1], c.columns)
        what = f"{len(run)} {self.cell_words(tiles[run[0]])} tiles"
        if row == last_row:
            return f"{what} in row {row + c.origin}, columns {column + c.origin} to {last_column + c.origin}"
        return f"{what} in column {column + c.origin}, rows {row + c.origin} to {last_row + c.origin}"


def _tiles(board: Board) -> Tiles:
    return list(chain.from_iterable(board))
