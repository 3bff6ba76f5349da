"""Laser: turn mirrors until the beam lights all targets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeInt

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import Cell, Cells
from vlmgym.sandbox.answers.choice import DIRECTIONS, neighbour
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, find_cells, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, pick
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import BLACK, WHITE, Canvas, Colour, Theme, blend
from vlmgym.sandbox.drawing.shapes import turned

Board = tuple[str, ...]

EMPTY, WALL, TARGET, SLASH, BACKSLASH = ".#o/\\"
MIRRORS = SLASH + BACKSLASH
LASERS = "^>v<"
"""The laser, by the direction of its beam as in `DIRECTIONS`."""
WORDS = {
    EMPTY: "empty",
    WALL: "wall",
    TARGET: "target",
    SLASH: "mirror /",
    BACKSLASH: "mirror \\",
    **{symbol: f"laser {name}" for symbol, name in zip(LASERS, DIRECTIONS)},
}

PAGE: Colour = (20, 24, 38)
FLOOR: Colour = (30, 36, 54)
BEAM: Colour = (255, 56, 72)
GLOW: Colour = (124, 34, 56)
SILVER: Colour = (196, 214, 232)
CRYSTAL: Colour = (70, 120, 150)
LIT: Colour = (120, 255, 190)
STONE: Colour = (86, 94, 120)

PROMPT_V1 = """\
The image shows {rows} rows and {columns} columns of cells. {numbering} A laser (the red device) sends a beam in the \
direction of its arrow. The beam goes straight through empty cells and targets (diamonds); a mirror turns it by 90 \
degrees, and walls, the laser and the edge of the board stop it.{beam} Mirrors are diagonal, / or \\; a move turns one \
mirror from one diagonal to the other. Make the beam pass through {goal}. You can turn mirrors {left} more {times}.
Actions: {actions}.
{form}"""


class LaserConfig(BoardConfig):
    """Configuration of laser."""

    rows: int = config_field("reasoning", [4, 5, 6, 7, 8], "Rows of cells.", ge=3, le=10)
    columns: int = config_field("reasoning", [4, 5, 6, 7, 8], "Columns of cells.", ge=3, le=10)
    mirrors: int = config_field("reasoning", [3, 5, 8, 11, 14], "Number of mirrors.", ge=1, le=30)
    walls: int = config_field("reasoning", [0, 1, 2, 3, 4], "Number of walls.", ge=0, le=10)
    targets: int = config_field("reasoning", [1, 1, 1, 2, 2], "Number of targets.", ge=1, le=3)
    moves: int = config_field("reasoning", [1, 2, 3, 4, 5], "Number of moves needed.", ge=1, le=6)
    spare: int = config_field("reasoning", 1, "Number of moves that may be wasted.", ge=0, le=10)
    beam: bool = config_field("reasoning", [True, True, True, False, False], "Draw the beam.")

    def model_post_init(self, context: object) -> None:
        if self.moves > self.mirrors:
            raise ValueError(f"moves must be at most mirrors={self.mirrors}, got {self.moves}")
        if (most := self.cell_count // 3) < (things := self.mirrors + self.walls + self.targets):
            raise ValueError(
                f"mirrors, walls and targets must be at most a third of the cells, which is {most}, got {things}"
            )


@dataclass(frozen=True, slots=True)
class LaserState:
    """Rows of the board, with symbols as in `WORDS`, and the number of moves left."""

    board: Board
    left: NonNegativeInt
    variation_seed: int = 0


class Laser(BoardGame[LaserState, Cell]):
    """Turn mirrors until the beam of a laser lights all targets.

    Description:
        The beam of the laser is reflected by mirrors, which stand in fixed places along one of two diagonals. Each turn
        turns one mirror. The number of turns is limited to `spare` more than are needed.

    Observation:
        The board as an RGB image, with the beam if `beam` is set.

    Action:
        `MultiDiscrete([rows, columns])`: row and column of the mirror to turn, from 0.

    Reward:
        1 when the beam passes through all targets; 0 otherwise.

    Episode end:
        All targets are lit, or no turns are left. Metrics: solved, share of targets lit.

    Oracle:
        Turns as few mirrors as possible; None if too few turns are left.
    """

    name = "laser"
    skills = ("spatial", "search")
    joined = True
    optimal_oracle = True
    answer = Cells(1, "the mirror to turn", verbs=("turn", "rotate", "flip"))
    attempts = 5000
    Config = LaserConfig
    State = LaserState
    prompt_template = PROMPT_V1
    words = WORDS
    perception_form = (
        f"the board, one line per row, cells separated by commas, each one of: {', '.join(WORDS.values())}; the beam "
        "is not written"
    )
    themes: ClassVar = {
        "light": Theme(PAGE, (12, 14, 24), FLOOR, FLOOR, (150, 164, 190)),
        "dark": Theme((6, 8, 14), (2, 4, 8), (16, 20, 32), FLOOR, (150, 164, 190)),
    }

    def deal(self, rng: np.random.Generator) -> LaserState | None:
        """Lead a beam over mirrors to the targets, place everything else beside it, and turn some of the mirrors.

        Returns None if that gets stuck, or if fewer moves than wanted light the targets.
        """
        c = self.config
        board, mirrors = self._lead_beam(rng, min(c.mirrors, c.moves + int(rng.integers(3))))
        path = [cell for cell, _ in trace(board)]
        empty = [cell for cell in dict.fromkeys(path) if board[cell[0]][cell[1]] == EMPTY]
        if len(mirrors) < c.moves or path[-1] not in empty or len(empty) < c.targets:
            return None
        for cell in (path[-1], *(empty[i] for i in rng.permutation(len(empty) - 1)[: c.targets - 1].tolist())):
            board = with_cell(board, cell, TARGET)
        free = [cell for cell in find_cells(board, EMPTY) if cell not in path]
        decoys = c.mirrors - len(mirrors)
        if len(free) < decoys + c.walls:
            return None
        for number, index in enumerate(rng.permutation(len(free))[: decoys + c.walls].tolist()):
            board = with_cell(board, free[index], MIRRORS[int(rng.integers(2))] if number < decoys else WALL)
        for index in rng.permutation(len(mirrors))[: c.moves].tolist():
            board = turned_mirror(board, mirrors[index])
        solution = fewest_turns(board, c.moves)
        if solution is None or len(solution) < c.moves:
            return None
        return LaserState(board, c.moves + c.spare)

    def _lead_beam(self, rng: np.random.Generator, mirrors: int) -> tuple[Board, list[Cell]]:
        """Place a laser at the edge, and up to `mirrors` mirrors one by one on its beam; return board and mirrors."""
        c = self.config
        direction = int(rng.integers(4))
        along = int(rng.integers(c.columns if direction % 2 == 0 else c.rows))
        start = ((c.rows - 1, along), (along, 0), (0, along), (along, c.columns - 1))[direction]
        board, placed = with_cell((EMPTY * c.columns,) * c.rows, start, LASERS[direction]), []
        for _ in range(mirrors):
            beam = [cell for cell, _ in trace(board)]
            last = max((i for i, cell in enumerate(beam) if cell in placed), default=-1)
            ahead = [cell for cell in beam[last + 1 : -1] if beam.count(cell) == 1]
            if not ahead:
                break
            placed.append(pick(rng, ahead))
            board = with_cell(board, placed[-1], MIRRORS[int(rng.integers(2))])
        return board, placed

    def legal_actions(self, state: LaserState) -> tuple[Cell, ...]:
        return () if self.ended(state) else tuple(find_cells(state.board, MIRRORS))

    def step(self, state: LaserState, action: Cell, rng: np.random.Generator) -> Step[LaserState]:
        ((row, column),) = self.answer.cells(action)
        if state.board[row][column] not in MIRRORS:
            raise IllegalAction(f"there is no mirror at {self.where(action)}")
        after = LaserState(turned_mirror(state.board, (row, column)), state.left - 1, state.variation_seed)
        return Step(after, float(is_solved(after.board)))

    def ended(self, state: LaserState) -> str | None:
        if is_solved(state.board):
            return "all targets are lit"
        return None if state.left else "no turns are left"

    def best_action(self, state: LaserState) -> Cell | None:
        solution = None if self.ended(state) else fewest_turns(state.board, state.left)
        return min(solution) if solution else None

    def metrics(self, state: LaserState, infos: Infos) -> Metrics:
        lit = {cell for cell, _ in trace(state.board)}
        targets = find_cells(state.board, TARGET)
        return {"solved": float(is_solved(state.board)), "targets lit": len(lit.intersection(targets)) / len(targets)}

    def cells(self, state: LaserState) -> Grid:
        """Symbol of each cell, and the sides between which the beam passes, as a bit mask of directions."""
        beam: dict[Cell, int] = {}
        if self.config.beam:
            for cell, direction in trace(state.board):
                out = reflected(state.board[cell[0]][cell[1]], direction)
                sides = 0 if out is None else 1 << out
                beam[cell] = beam.get(cell, 0) | sides | 1 << (direction ^ 2)
            ((row, column),) = find_cells(state.board, LASERS)
            beam[row, column] = 1 << LASERS.index(state.board[row][column])
        return self.in_rows(tuple([(state.board[r][c], beam.get((r, c), 0)) for r, c in self.all_cells]))

    def paint_cell(self, canvas: Canvas, cell: tuple[str, int], angle: float) -> None:
        symbol, beam = cell
        side = canvas.width
        middle, edge = side / 2, max(1.0, side * 0.015)
        floor = self.painter.theme.empty
        canvas.rectangle(0, 0, side, side, blend(floor, WHITE, 0.09))
        canvas.rectangle(edge, edge, side - 2 * edge, side - 2 * edge, floor)
        if symbol == WALL:
            stone = self.tint(STONE)
            canvas.rectangle(edge, edge, side - 2 * edge, side - 2 * edge, blend(stone, BLACK, 0.4), side * 0.1)
            canvas.rectangle(side * 0.06, side * 0.04, side * 0.88, side * 0.82, stone, side * 0.08)
            return
        if symbol == TARGET:
            crystal = self.tint(LIT if beam else CRYSTAL)
            for radius, colour in (
                (0.36, blend(crystal, BLACK, 0.4)),
                (0.31, crystal),
                (0.15, blend(crystal, WHITE, 0.6)),
            ):
                canvas.polygon(
                    turned([(0, -1), (0.8, 0), (0, 1), (-0.8, 0)], middle, middle, side * radius, angle), colour
                )
        for width, colour in ((0.11, self.tint(GLOW)), (0.045, self.tint(BEAM))):
            self._paint_beam(canvas, beam, side * width, colour)
        if symbol in MIRRORS:
            sign = 1 if symbol == SLASH else -1
            tilt = angle / 3
            for width, colour in ((0.14, blend(self.tint(SILVER), BLACK, 0.55)), (0.08, self.tint(SILVER))):
                (start, end) = turned([(-0.62, 0.62 * sign), (0.62, -0.62 * sign)], middle, middle, side / 2, tilt)
                canvas.line(start, end, side * width, colour)
        elif symbol in LASERS:
            self._paint_laser(canvas, LASERS.index(symbol))

    def _paint_beam(self, canvas: Canvas, beam: int, width: float, colour: Colour) -> None:
        """Draw the beam from the middle of a cell to some of its sides."""
        side = canvas.width
        ends = ((side / 2, 0.0), (float(side), side / 2), (side / 2, float(side)), (0.0, side / 2))
        for direction, end in enumerate(ends):
            if beam >> direction & 1:
                canvas.line((side / 2, side / 2), end, width, colour)
                canvas.circle(side / 2, side / 2, width / 2, colour)

    def _paint_laser(self, canvas: Canvas, direction: int) -> None:
        side, red = canvas.width, self.tint((214, 44, 58))
        middle, tilt = side / 2, -90.0 * direction
        body = [
            (-0.62, 0.7),
            (-0.62, -0.2),
            (-0.26, -0.45),
            (-0.26, -0.8),
            (0.26, -0.8),
            (0.26, -0.45),
            (0.62, -0.2),
            (0.62, 0.7),
        ]
        canvas.polygon(turned(body, middle, middle, side / 2, tilt), blend(red, BLACK, 0.3))
        arrow = [(0, -0.55), (0.4, 0), (0.14, 0), (0.14, 0.5), (-0.14, 0.5), (-0.14, 0), (-0.4, 0)]
        canvas.polygon(turned(arrow, middle, middle, side / 2, tilt), blend(red, WHITE, 0.85))

    def prompt(self, state: LaserState) -> str:
        return self.fill_prompt(
            beam="" if self.config.beam else " The beam is not drawn.",
            goal="the target" if self.config.targets == 1 else f"all {self.config.targets} targets at the same time",
            left=state.left,
            times="time" if state.left == 1 else "times",
        )

    def explain(self, state: LaserState, action: Cell) -> str:
        """Describe how the beam runs now, and which mirrors a solution turns."""
        path = trace(state.board)
        hit = [self.where(cell) for cell, _ in path if state.board[cell[0]][cell[1]] in MIRRORS]
        solution = fewest_turns(state.board, state.left)
        plan = f"Turning {', '.join(map(self.where, sorted(solution)))} lights all targets. " if solution else ""
        return f"The beam meets the mirrors {', '.join(hit) or 'nowhere'}. {plan}I turn {self.where(action)}."


# Beam -----------------------------------------------------------------------------------------------------------------


def reflected(symbol: str, direction: int) -> int | None:
    """Direction of a beam after a cell that it has entered in a direction; None if the cell stops it."""
    if symbol in MIRRORS:
        return direction ^ 1 if symbol == SLASH else 3 - direction
    return direction if symbol in EMPTY + TARGET else None


def trace(board: Board) -> list[tuple[Cell, int]]:
    """List the cells that the beam enters, with its direction there; the last may stop it.

    A beam can be followed backwards, so it never runs in a circle.
    """
    (cell,) = find_cells(board, LASERS)
    direction: int | None = LASERS.index(board[cell[0]][cell[1]])
    beam: list[tuple[Cell, int]] = []
    while direction is not None:
        cell = neighbour(cell, direction)
        if not (0 <= cell[0] < len(board) and 0 <= cell[1] < len(board[0])):
            break
        beam.append((cell, direction))
        direction = reflected(board[cell[0]][cell[1]], direction)
    return beam


@lru_cache(maxsize=4096)
def is_solved(board: Board) -> bool:
    """Return whether the beam passes through all targets."""
    return {*find_cells(board, TARGET)} <= {cell for cell, _ in trace(board)}


def turned_mirror(board: Board, cell: Cell) -> Board:
    """Turn a mirror."""
    return with_cell(board, cell, BACKSLASH if board[cell[0]][cell[1]] == SLASH else SLASH)


@lru_cache(maxsize=4096)
def fewest_turns(board: Board, most: int) -> tuple[Cell, ...] | None:
    """Return the mirrors of a smallest set, of at most `most`, whose turn solves the board; None if there is none.

    Only mirrors that the beam meets matter, so the search follows the beam and decides at each mirror in turn.
    """
    for turns in range(most + 1):
        if (solution := _turn(board, frozenset(), turns)) is not None:
            return solution
    return None


def _turn(board: Board, fixed: frozenset[Cell], turns: int) -> tuple[Cell, ...] | None:
    """Turn exactly `turns` mirrors that are not fixed, in the order in which the beam meets them."""
    if not turns:
        return () if is_solved(board) else None
    for cell, _ in trace(board):
        if board[cell[0]][cell[1]] in MIRRORS and cell not in fixed:
            rest = _turn(turned_mirror(board, cell), fixed | {cell}, turns - 1)
            if rest is not None:
                return (cell, *rest)
            fixed |= {cell}
    return None
