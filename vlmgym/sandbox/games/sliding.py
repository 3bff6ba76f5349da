"""Sliding-tile puzzle: put the numbered tiles in order by sliding them into the gap."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

import numpy as np
from pydantic import PositiveInt

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.cells import CELL
from vlmgym.sandbox.answers.choice import DIRECTIONS, WAY, Directions, neighbours
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step
from vlmgym.sandbox.core.search import Plan, Planner
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import Canvas, Colour

EMPTY = "empty"
INK: Colour = (255, 252, 246)
TILE: Colour = (34, 98, 168)
EDGE: Colour = (22, 66, 118)

PROMPT_V1 = """\
The image shows a sliding-tile puzzle with {rows} rows and {columns} columns, tiles numbered 1 to {last}, and one \
empty cell. {numbering} A move slides a tile next to the empty cell into it: up slides the tile below the empty cell \
up, right slides the tile on its left to the right. Put the tiles in order, row by row from 1 at the top left, with \
the empty cell at the bottom right.
Actions: {actions}.
{form}"""


class SlidingConfig(BoardConfig):
    """Configuration of the sliding-tile puzzle."""

    rows: int = config_field("reasoning", [3, 3, 3, 3, 4], "Rows of the board.", ge=2, le=5)
    columns: int = config_field("reasoning", [3, 3, 3, 4, 4], "Columns of the board.", ge=2, le=5)
    shuffle: int = config_field("reasoning", [4, 8, 16, 26, 32], "Random moves from the solved board.", ge=1, le=1000)


@dataclass(frozen=True, slots=True)
class SlidingState:
    """Tiles row by row, 0 for the empty cell, and the initial sum of their distances from their goals (`par`)."""

    tiles: Tiles
    par: PositiveInt
    variation_seed: int = 0


class Sliding(BoardGame[SlidingState, int]):
    """Slide numbered tiles into order.

    Description:
        A move slides a tile into the empty cell next to it. A board is made from the solved board by `shuffle` random
        moves that never undo the previous one, so it can always be solved. If these moves lead back to the solved
        board, one more follows.

    Observation:
        The board as an RGB image.

    Action:
        `Discrete(4)`: the direction to slide a tile: 0 up, 1 right, 2 down, 3 left. A direction is illegal if no tile
        can slide that way.

    Reward:
        The score is 1 - (total distance of the tiles from their goals) / (initial distance), but at least 0: 1 if
        solved. The reward of a turn is the change in score, 0 for an illegal or unparsable answer.

    Episode end:
        The tiles are in order. Metrics: solved, distance left.

    Oracle:
        Plays a shortest solution. It gives up if the search exceeds 300,000 nodes, as on one board in 2,000 at level 5.
    """

    name = "sliding"
    title = "Sliding tiles"
    statements = re.compile(
        rf"The empty cell is at {CELL}\.|Sliding {WAY} moves tile \d{{1,4}} into it\."
        r"|The distances of all tiles from their goals add up to \d{1,4} before and \d{1,4} after the move\."
    )
    skills = ("planning", "search")
    answer = Directions(("move", "slide"))
    optimal_oracle = True
    Config = SlidingConfig
    State = SlidingState
    prompt_template = PROMPT_V1
    perception_form = "the board, one line per row, numbers separated by commas, empty for the empty cell"

    def deal(self, rng: np.random.Generator) -> SlidingState:
        c = self.config
        tiles, last = self._goal, -1
        drawn = rng.random(c.shuffle).tolist()
        while drawn:
            for number in drawn:
                moves = [move for move in self._moves[tiles.index(0)] if move[0] ^ 2 != last]
                last, source = moves[int(number * len(moves))]
                tiles = _slid(tiles, source)
            # One more move if these moves lead back to the goal.
            drawn = rng.random(int(tiles == self._goal)).tolist()
        return SlidingState(tiles, distance(tiles, c.columns))

    def legal_actions(self, state: SlidingState) -> tuple[int, ...]:
        if state.tiles == self._goal:
            return ()
        return tuple([action for action, _ in self._moves[state.tiles.index(0)]])

    def step(self, state: SlidingState, action: int, rng: np.random.Generator) -> Step[SlidingState]:
        self.answer.check(action)
        source = dict(self._moves[state.tiles.index(0)]).get(action)
        if source is None:
            raise IllegalAction(f"no tile can slide {DIRECTIONS[action]}")
        after = SlidingState(_slid(state.tiles, source), state.par, state.variation_seed)
        return Step(after, self._score(after) - self._score(state))

    def ended(self, state: SlidingState) -> str | None:
        return "the tiles are in order" if state.tiles == self._goal else None

    def goal(self, state: SlidingState) -> SlidingState:
        return replace(state, tiles=self._goal)

    def best_action(self, state: SlidingState) -> int | None:
        """First move of a shortest solution; None if solved or the search exceeds 300,000 nodes."""
        return self._planner.move(state.tiles)

    def metrics(self, state: SlidingState, infos: Infos) -> Metrics:
        left = distance(state.tiles, self.config.columns)
        return {"solved": float(left == 0), "distance left": float(left)}

    def check_state(self, state: SlidingState) -> None:
        super().check_state(state)
        if sorted(state.tiles) != sorted(self._goal):
            raise StateError(f"the tiles are not 1 to {len(self._goal) - 1} and an empty cell")
        if not solvable(state.tiles, self.config.columns):
            raise StateError("the tiles cannot be put in order")

    def cells(self, state: SlidingState) -> Grid:
        return self.in_rows(state.tiles)

    def paint_cell(self, canvas: Canvas, cell: int, angle: float) -> None:
        if not cell:
            return
        side = canvas.width
        canvas.rectangle(0, 0, side, side, self.tint(EDGE), radius=side * 0.09)
        canvas.rectangle(side * 0.04, side * 0.03, side * 0.92, side * 0.92, self.tint(TILE), radius=side * 0.07)
        canvas.text(str(cell), side / 2, side / 2, side * 0.38, self.tint(INK), max_width=side * 0.8, angle=angle)

    def cell_words(self, cell: int) -> str:
        return str(cell) if cell else EMPTY

    def prompt(self, state: SlidingState) -> str:
        c = self.config
        return self.fill_prompt(last=c.cell_count - 1)

    def explain(self, state: SlidingState, action: int) -> str:
        """State where the gap is, which tile moves and the sum of distances before and after."""
        cell = state.tiles.index(0)
        source = dict(self._moves[cell])[action]
        before = distance(state.tiles, self.config.columns)
        after = distance(_slid(state.tiles, source), self.config.columns)
        return (
            f"The empty cell is at {self.where(self.cell_at(cell))}. Sliding {DIRECTIONS[action]} moves tile "
            f"{state.tiles[source]} into it. The distances of all tiles from their goals add up to {before} before and "
            f"{after} after the move."
        )

    def _score(self, state: SlidingState) -> float:
        return max(0.0, 1 - distance(state.tiles, self.config.columns) / state.par)

    @cached_property
    def _goal(self) -> Tiles:
        return goal_of(self.config.rows, self.config.columns)

    @cached_property
    def _moves(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        return gap_moves(self.config.rows, self.config.columns)

    @cached_property
    def _planner(self) -> Planner[Tiles, int]:
        return Planner(lambda tiles: solve(tiles, self.config.rows, self.config.columns))


def _slid(tiles: Tiles, source: int) -> Tiles:
    """Return the tiles after sliding the one at index `source` into the gap."""
    moved = list(tiles)
    gap = tiles.index(0)
    moved[gap], moved[source] = tiles[source], 0
    return tuple(moved)


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# Solver for sliding-tile puzzles: iterative-deepening A* with the Manhattan distance. Linear conflicts would save two
# nodes of three, and make each more than ten times as slow.
#
# `solve` returns the first shortest solution in the order of moves, so a search from a later board of this solution
# returns the rest of it. Cells are numbered row by row.

Tiles = tuple[int, ...]
"""Tile in each cell; 0 for the gap."""

MOST_NODES = 300_000
"""Maximum number of nodes, reached in a fifth of a second; boards at level 5 need 9,000 on average."""


@lru_cache
def gap_moves(rows: int, columns: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the legal actions for each position of the gap, each with the cell of the tile that moves."""
    return tuple(tuple(sorted((side ^ 2, cell) for side, cell in near)) for near in neighbours(rows, columns))


def goal_of(rows: int, columns: int) -> Tiles:
    """Solved board: tiles in reading order, the gap last."""
    return (*range(1, rows * columns), 0)


def distance(tiles: Tiles, columns: int) -> int:
    """Sum of the Manhattan distances of the tiles from their goals."""
    return sum(_distance(cell, tile, columns) for cell, tile in enumerate(tiles) if tile)


def solvable(tiles: Tiles, columns: int) -> bool:
    """Return whether moves can put tiles in order.

    Each move swaps the gap with a tile, so an even number of swaps solves the board if the gap is an even number of
    cells from its goal (Johnson and Story, 1879).
    """
    swaps, left = 0, [*tiles]
    for cell in range(len(left)):
        while (tile := left[cell]) and tile != cell + 1:
            left[cell], left[tile - 1] = left[tile - 1], tile
            swaps += 1
    row, column = divmod(tiles.index(0), columns)
    return (swaps + len(tiles) // columns - 1 - row + columns - 1 - column) % 2 == 0


@cache
def _distance(cell: int, tile: int, columns: int) -> int:
    """Manhattan distance of a tile in a cell from its goal."""
    return abs(cell // columns - (tile - 1) // columns) + abs(cell % columns - (tile - 1) % columns)


def solve(start: Tiles, rows: int, columns: int) -> Plan[Tiles, int] | None:
    """Return a shortest solution, or None if the search exceeds `MOST_NODES`."""
    moves, tiles, nodes = _moves_with_changes(rows, columns), list(start), 0
    path: list[tuple[Tiles, int]] = []

    def extend(gap: int, manhattan: int, left: int, last: int) -> int:
        """Search `left` moves ahead; if solved, add them to `path`, last first, and return 0.

        Otherwise, return how much the bound must grow.
        """
        nonlocal nodes
        nodes += 1
        if manhattan == 0:
            return 0
        over = 1 << 30
        if nodes > MOST_NODES:
            return over
        for action, source, changes in moves[gap]:
            if action ^ 2 == last:
                continue
            tile = tiles[source]
            after = manhattan + changes[tile]
            lacking = after - left + 1
            if lacking <= 0:
                tiles[gap], tiles[source] = tile, 0
                lacking = extend(source, after, left - 1, action)
                tiles[gap], tiles[source] = 0, tile
                if lacking == 0:
                    path.append((tuple(tiles), action))
                    return 0
            if lacking < over:
                over = lacking
        return over

    manhattan = bound = distance(start, columns)
    while nodes <= MOST_NODES:
        if (missing := extend(start.index(0), manhattan, bound, -1)) == 0:
            return path[::-1]
        bound += missing
    return None


@lru_cache
def _moves_with_changes(rows: int, columns: int) -> list[list[tuple[int, int, list[int]]]]:
    """List the moves for each position of the gap: the action, the cell of the tile, and how much its distance from its
    goal changes, for each tile.
    """

    def changes(source: int, gap: int) -> list[int]:
        return [_distance(gap, tile, columns) - _distance(source, tile, columns) for tile in range(rows * columns)]

    return [
        [(action, source, changes(source, gap)) for action, source in near]
        for gap, near in enumerate(gap_moves(rows, columns))
    ]
