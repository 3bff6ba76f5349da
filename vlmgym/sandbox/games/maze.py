"""Maze: walk to the exit, optionally in fog."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import CELL, Cell
from vlmgym.sandbox.answers.choice import DIRECTIONS, WAY, Directions, neighbour, neighbours
from vlmgym.sandbox.core import search
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_cell
from vlmgym.sandbox.core.config import GameConfig, config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.shapes import WALL, paint_player

Openings = tuple[tuple[int, ...], ...]
"""Open sides of each cell, as a bit mask: 1 (up), 2 (right), 4 (down), 8 (left)."""

HIDDEN = "hidden"
EXIT: Colour = (36, 150, 76)
FOG: Colour = (70, 74, 86)
HISTORY = 16
"""Number of past turns that prompts include by default if there is fog."""
EXPLAINED = 8
"""Maximum number of steps in an explanation."""

PROMPT_V1 = """\
The image shows a maze with {rows} rows and {columns} columns of cells. {numbering} Thick dark lines are walls. Each \
turn, the player (blue) moves to an adjacent cell; a move through a wall is illegal. Walk to the exit \
(green).{fog_rule}
Actions: {actions}.
{form}"""
_FOG = " Only cells at most {fog} {unit} away from the player, in rows and in columns, are shown."

_PERCEPTION = """\
the maze, one line per row, cells separated by commas; each cell is written as the directions in which it is open, in \
the order up, right, down, left, after player or exit if it is there, for example player up right"""


class MazeConfig(BoardConfig):
    """Configuration of the maze."""

    rows: int = config_field("reasoning", [3, 4, 6, 8, 10], "Rows of cells.", ge=2, le=12)
    columns: int = config_field("reasoning", [3, 5, 6, 8, 10], "Columns of cells.", ge=2, le=12)
    fog: int = config_field(
        "reasoning", [0, 0, 0, 0, 2], "Distance beyond which cells are hidden; 0 hides none.", ge=0, le=11
    )


@dataclass(frozen=True, slots=True)
class MazeState:
    """Openings of all cells, rows x columns, and the cells of the player and the exit."""

    openings: Openings
    player: Cell
    exit: Cell
    variation_seed: int = 0


class Maze(BoardGame[MazeState, int]):
    """Walk through a maze to the exit.

    Description:
        Exactly one path connects any two cells of the maze. The player starts in the cell farthest from the exit. With
        `fog`, cells more than `fog` rows or columns away from the player are hidden, even if they have been seen, so
        prompts repeat the last 16 turns.

    Observation:
        The maze as an RGB image.

    Action:
        `Discrete(4)`: 0 up, 1 right, 2 down, 3 left. A move through a wall is illegal.

    Reward:
        1 / n for a step towards the exit and -1 / n for a step away from it, where n is the length of the path from the
        start. The score is therefore the completed fraction of the path. 0 for an illegal or unparsable answer.

    Episode end:
        The exit is reached. Metrics: solved, steps left.

    Oracle:
        Knows the whole maze, even with fog, but its explanations then mention only what the image shows.
    """

    name = "maze"
    statements = re.compile(
        rf"The path from {CELL} to the exit has \d{{1,4}} steps and begins {WAY}(?:, {WAY}){{0,9}}\."
        rf"|From {CELL}, the way is open {WAY}(?: and {WAY}){{0,3}}\.|I move {WAY} to {CELL}\."
    )
    skills = ("search", "spatial")
    joined = True
    reward_is_hint = True
    answer = Directions(("move", "go", "walk", "step"))
    optimal_oracle = True
    Config = MazeConfig
    State = MazeState
    prompt_template = PROMPT_V1

    def __init__(self, config: GameConfig | None = None) -> None:
        super().__init__(config)
        self.history = HISTORY if self.partially_observable else 0

    @cached_property
    def partially_observable(self) -> bool:  # type: ignore[override]
        """True with fog."""
        return bool(self.config.fog > 0)

    def deal(self, rng: np.random.Generator) -> MazeState:
        c = self.config
        openings = carve(c.rows, c.columns, rng)
        goal = int(rng.integers(c.rows)), int(rng.integers(c.columns))
        steps = distances(openings, goal)
        return MazeState(openings, max(steps, key=steps.__getitem__), goal)

    def legal_actions(self, state: MazeState) -> tuple[int, ...]:
        if state.player == state.exit:
            return ()
        open_sides = state.openings[state.player[0]][state.player[1]]
        return tuple([action for action in range(4) if open_sides >> action & 1])

    def step(self, state: MazeState, action: int, rng: np.random.Generator) -> Step[MazeState]:
        self.answer.check(action)
        if not state.openings[state.player[0]][state.player[1]] >> action & 1:
            side = ("above", "to the right of", "below", "to the left of")[action]
            raise IllegalAction(f"there is a wall {side} the player")
        after = replace(state, player=neighbour(state.player, action))
        steps = distances(state.openings, state.exit)
        reward = (steps[state.player] - steps[after.player]) / max(steps.values())
        return Step(after, reward)

    def ended(self, state: MazeState) -> str | None:
        return "the exit is reached" if state.player == state.exit else None

    def best_action(self, state: MazeState) -> int | None:
        """First step of the path to the exit."""
        steps = distances(state.openings, state.exit)
        legal = self.legal_actions(state)
        return min(legal, key=lambda action: steps[neighbour(state.player, action)], default=None)

    def metrics(self, state: MazeState, infos: Infos) -> Metrics:
        left = distances(state.openings, state.exit)[state.player]
        return {"solved": float(left == 0), "steps left": float(left)}

    def cells(self, state: MazeState) -> Grid:
        """Openings and contents of each cell, or `HIDDEN`."""
        (row, column), fog = state.player, self.config.fog
        rows: tuple[tuple[Hashable, ...], ...] = tuple(map(_plain, state.openings))
        if fog:
            left, right = max(0, column - fog), column + fog + 1
            hidden = (HIDDEN,) * self.config.columns
            rows = tuple(
                hidden[:left] + line[left:right] + hidden[right:] if abs(r - row) <= fog else hidden
                for r, line in enumerate(rows)
            )
        for (r, c), mark in ((state.exit, "exit"), (state.player, "player")):
            if rows[r][c] != HIDDEN:
                rows = with_cell(rows, (r, c), ((state.openings[r][c], mark),))
        return rows

    def paint_cell(self, canvas: Canvas, cell: tuple[int, str] | str, angle: float) -> None:
        side = canvas.width
        if not isinstance(cell, tuple):
            canvas.rectangle(0, 0, side, side, self.tint(FOG))
            return
        openings, mark = cell
        wall, colour = side * 0.07, self.tint(WALL)
        boxes = ((0, 0, side, wall), (side - wall, 0, wall, side), (0, side - wall, side, wall), (0, 0, wall, side))
        for action, box in enumerate(boxes):
            if not openings >> action & 1:
                canvas.rectangle(*box, colour)
        for x in (0.0, side - wall):  # ends of the walls of neighbouring cells
            for y in (0.0, side - wall):
                canvas.rectangle(x, y, wall, wall, colour)
        if mark == "exit":
            canvas.rectangle(side * 0.27, side * 0.16, side * 0.46, side * 0.68, self.tint(EXIT), radius=side * 0.06)
            canvas.rectangle(side * 0.33, side * 0.22, side * 0.34, side * 0.56, self.tint((140, 210, 150)))
            canvas.circle(side * 0.61, side * 0.52, side * 0.04, self.tint(EXIT))
        elif mark == "player":
            paint_player(canvas, self.tint, angle)

    def cell_words(self, cell: tuple[int, str] | str) -> str:
        if not isinstance(cell, tuple):
            return HIDDEN
        openings, mark = cell
        sides = [name for action, name in enumerate(DIRECTIONS) if openings >> action & 1]
        return " ".join([mark, *sides] if mark else sides)

    def prompt(self, state: MazeState) -> str:
        fog = self.config.fog
        return self.fill_prompt(
            _PERCEPTION + ("; hidden for a hidden cell" if fog else ""),
            fog_rule=_FOG.format(fog=fog, unit="cell" if fog == 1 else "cells") if fog else "",
        )

    def explain(self, state: MazeState, action: int) -> str:
        """State how the path to the exit begins or, with fog, which sides are open, and where the move leads."""
        start, to = self.where(state.player), self.where(neighbour(state.player, action))
        move = f"I move {DIRECTIONS[action]} to {to}."
        if self.partially_observable:
            ways = " and ".join(DIRECTIONS[side] for side in self.legal_actions(state))
            return f"From {start}, the way is open {ways}. {move}"
        steps = distances(state.openings, state.exit)
        path: list[str] = []
        walker = state
        while (best := self.best_action(walker)) is not None and len(path) < EXPLAINED:
            path.append(DIRECTIONS[best])
            walker = replace(walker, player=neighbour(walker.player, best))
        return f"The path from {start} to the exit has {steps[state.player]} steps and begins {', '.join(path)}. {move}"


def carve(rows: int, columns: int, rng: np.random.Generator) -> Openings:
    """Make a random maze by depth-first search; exactly one path connects any two cells."""
    near, openings = neighbours(rows, columns), [0] * (rows * columns)
    path = [int(rng.integers(rows)) * columns + int(rng.integers(columns))]
    drawn = iter(rng.random(4 * rows * columns).tolist())
    while path:
        closed = [(action, cell) for action, cell in near[path[-1]] if not openings[cell]]
        if not closed:
            path.pop()
            continue
        action, cell = closed[int(next(drawn) * len(closed))]
        openings[path[-1]] |= 1 << action
        openings[cell] |= 1 << (action ^ 2)
        path.append(cell)
    return tuple(tuple(openings[start : start + columns]) for start in range(0, rows * columns, columns))


@lru_cache(maxsize=4096)
def distances(openings: Openings, goal: Cell) -> Mapping[Cell, int]:
    """Return the number of steps to the goal for each cell that can reach it."""

    def beside(cell: Cell) -> Iterator[Cell]:
        return (neighbour(cell, action) for action in range(4) if openings[cell[0]][cell[1]] >> action & 1)

    return search.distances([goal], beside)


@lru_cache(maxsize=4096)
def _plain(line: tuple[int, ...]) -> tuple[Hashable, ...]:
    return tuple([(sides, "") for sides in line])
