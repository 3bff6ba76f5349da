"""Snake: eat and grow without running into the wall or yourself."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import CELL, Cell
from vlmgym.sandbox.answers.choice import DIRECTIONS, STEPS, WAY, Directions, neighbour
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, pick
from vlmgym.sandbox.core.search import shortest_path
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import BLACK, WHITE, Canvas, Colour, blend

LENGTH = 3
"""Initial length of the snake."""
GREEN: Colour = (52, 140, 60)
RED: Colour = (208, 36, 40)
EMPTY = ("empty", ())

PROMPT_V1 = """\
The image shows a Snake board with {rows} rows and {columns} columns. {numbering} Each turn, the head of the snake \
(green, with eyes) moves one cell and the body follows. Food (red) makes the snake one cell longer, and new food \
appears in a random empty cell. The game ends if the head runs into the wall or the body; it may enter the cell that \
the tip of the tail leaves. Turning back onto the neck is illegal. Eat {food} pieces of food to win.
Actions: {actions}.
{form}"""


class SnakeConfig(BoardConfig):
    """Configuration of Snake."""

    rows: int = config_field("reasoning", [5, 6, 7, 8, 9], "Rows of the board.", ge=4, le=12)
    columns: int = config_field("reasoning", [5, 6, 7, 8, 9], "Columns of the board.", ge=4, le=12)
    food: int = config_field("reasoning", [3, 5, 8, 11, 13], "Number of pieces of food to eat.", ge=1, le=100)

    def model_post_init(self, context: object) -> None:
        if self.food > (most := self.cell_count - LENGTH):
            raise ValueError(f"food must be at most {most} on a {self.rows} x {self.columns} board, got {self.food}")


@dataclass(frozen=True, slots=True)
class SnakeState:
    """Cells of the snake, from head to tail, and of the food; `crashed` if the last move ran into wall or body."""

    body: Body
    food: Cell
    crashed: bool = False
    variation_seed: int = 0


class Snake(BoardGame[SnakeState, int]):
    """Steer the snake to food without running into the wall or its body.

    Description:
        Each turn, the head moves one cell and the body follows. On food, the snake grows by one cell, and new food
        appears in a random empty cell. The head may enter the cell that the tip of the tail leaves.

    Observation:
        The board as an RGB image.

    Action:
        `Discrete(4)`: 0 up, 1 right, 2 down, 3 left. Turning back onto the neck is illegal.

    Reward:
        1 / `food` for each piece of food eaten, so the score is at most 1; 0 for an illegal or unparsable answer.

    Episode end:
        All `food` is eaten, or the head runs into the wall or the body. Metrics: food eaten, crashed.
    """

    name = "snake"
    statements = re.compile(
        rf"The head is at {CELL}, the food at {CELL}, \d{{1,4}} {WAY}(?: and \d{{1,4}} {WAY})?\."
        rf"|I move {WAY} to {CELL}, which is (?:free|food)\."
    )
    skills = ("planning", "spatial")
    joined = True
    answer = Directions(("move", "go", "turn"))
    Config = SnakeConfig
    State = SnakeState
    prompt_template = PROMPT_V1
    perception_form = (
        "the board, one line per row, cells separated by commas, each one of: empty, food, head, body, tail"
    )

    def deal(self, rng: np.random.Generator) -> SnakeState:
        c = self.config
        row, column = int(rng.integers(c.rows)), int(rng.integers(LENGTH - 1, c.columns))
        body = tuple((row, column - i) for i in range(LENGTH))
        return SnakeState(body, self._new_food(body, rng))

    def legal_actions(self, state: SnakeState) -> tuple[int, ...]:
        if self.ended(state) is not None:
            return ()
        return tuple([action for action in range(4) if neighbour(state.body[0], action) != state.body[1]])

    def step(self, state: SnakeState, action: int, rng: np.random.Generator) -> Step[SnakeState]:
        self.answer.check(action)
        head = neighbour(state.body[0], action)
        if head == state.body[1]:
            raise IllegalAction(f"the snake cannot turn back {DIRECTIONS[action]} onto its neck")
        eats = head == state.food
        if not self.inside(head) or head in (state.body if eats else state.body[:-1]):
            return Step(replace(state, crashed=True), 0.0, {"ate": False})
        body = moved(state.body, action, state.food)
        won = eats and len(body) - LENGTH == self.config.food
        food = self._new_food(body, rng) if eats and not won else state.food
        return Step(SnakeState(body, food, False, state.variation_seed), eats / self.config.food, {"ate": eats})

    def ended(self, state: SnakeState) -> str | None:
        if state.crashed:
            return "the snake ran into the wall or its body"
        return "all food is eaten" if len(state.body) - LENGTH >= self.config.food else None

    def best_action(self, state: SnakeState) -> int | None:
        """Step towards food if the snake can still reach its tail after eating; else try to keep the tail reachable."""
        if self.ended(state) is not None:
            return None
        best = best_step(state.body, state.food, self.config.rows, self.config.columns)
        return self.legal_actions(state)[0] if best is None else best

    def metrics(self, state: SnakeState, infos: Infos) -> Metrics:
        return {"food eaten": float(len(state.body) - LENGTH), "crashed": float(state.crashed)}

    def cells(self, state: SnakeState) -> Grid:
        """Name of each cell, and the directions from it to the adjacent parts of the snake."""
        rows: list[list[Hashable]] = [[EMPTY] * self.config.columns for _ in range(self.config.rows)]
        body = state.body
        if state.food not in body:
            rows[state.food[0]][state.food[1]] = ("food", ())
        for index, (row, column) in enumerate(body):
            adjacent = body[max(0, index - 1) : index] + body[index + 1 : index + 2]
            joins = [STEPS.index((r - row, c - column)) for r, c in adjacent]
            name = "body" if joins[1:] and index else "tail" if index else "crashed head" if state.crashed else "head"
            rows[row][column] = name, tuple(joins)
        return list(map(tuple, rows))

    def paint_cell(self, canvas: Canvas, cell: tuple[str, tuple[int, ...]], angle: float) -> None:
        name, joins = cell
        side = canvas.width
        middle = side / 2
        canvas.rectangle(0, 0, side, side, blend(self.painter.theme.empty, BLACK, 0.12))
        canvas.rectangle(1, 1, side - 2, side - 2, self.painter.theme.empty)
        if name == "food":
            canvas.circle(middle, side * 0.54, side * 0.3, self.tint(RED))
            canvas.rectangle(side * 0.48, side * 0.14, side * 0.06, side * 0.16, self.tint((110, 70, 30)))
            canvas.circle(side * 0.4, side * 0.44, side * 0.07, self.tint((250, 170, 160)))
        if not joins:
            return
        width = side * (0.36 if name == "tail" else 0.62)
        colour = self.tint(blend(GREEN, BLACK, 0.3) if "head" in name else GREEN)
        for action in joins:
            down, right = STEPS[action]
            left, top = (middle - width / 2 + min(v, 0) * (middle - width / 2) for v in (right, down))
            across, along = (width + abs(v) * (middle - width / 2) for v in (right, down))
            canvas.rectangle(left, top, across, along, colour)
        if name == "body":
            canvas.circle(middle, middle, width / 2, colour)
            canvas.circle(middle, middle, side * 0.1, self.tint(blend(GREEN, WHITE, 0.35)))
        elif name == "tail":
            canvas.circle(middle, middle, width / 2, colour)
        else:
            canvas.circle(middle, middle, side * 0.4, colour)
            down, right = STEPS[joins[0]]
            for sign in (-1, 1):
                x, y = middle + side * 0.17 * (sign * down - right), middle + side * 0.17 * (sign * right - down)
                canvas.circle(x, y, side * 0.1, self.tint(RED if name == "crashed head" else WHITE))
                canvas.circle(x, y, side * 0.05, self.tint(BLACK))

    def cell_words(self, cell: tuple[str, tuple[int, ...]]) -> str:
        return cell[0].removeprefix("crashed ")

    def explain(self, state: SnakeState, action: int) -> str:
        """State where the head and the food are, and what the head moves into."""
        head, food = state.body[0], state.food
        ways = [
            f"{abs(distance)} {name if distance > 0 else other}"
            for distance, name, other in ((food[0] - head[0], "down", "up"), (food[1] - head[1], "right", "left"))
            if distance
        ]
        to = neighbour(state.body[0], action)
        meets = "the wall" if not self.inside(to) else "its body" if to in state.body[:-1] else ""
        where = f"The head is at {self.where(head)}, the food at {self.where(food)}, {' and '.join(ways)}."
        if meets:
            return f"{where} Moving {DIRECTIONS[action]} runs into {meets}."
        return f"{where} I move {DIRECTIONS[action]} to {self.where(to)}, which is {'food' if to == food else 'free'}."

    def _new_food(self, body: Body, rng: np.random.Generator) -> Cell:
        taken = set(body)
        free = [cell for cell in self.all_cells if cell not in taken]
        return pick(rng, free)


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# Strategy for Snake: follow a shortest path to the food if it is safe, or else make a safe step.
#
# A path or step is safe if the head can still reach the tail afterwards, because the snake can then follow its tail. If
# several steps are safe, the strategy takes the one after which the shortest path to the tail is longest; if none is
# safe, it takes the first step that does not end the game.

Body = tuple[Cell, ...]


def best_step(body: Body, food: Cell, rows: int, columns: int) -> int | None:
    """Return the strategy's action, or None if every action ends the game."""

    def path(body: Body, goal: Cell) -> list[int] | None:
        """Find a path from the head to a cell, through cells that the body leaves in time; None if none is found.

        The search keeps only the earliest arrival at each cell, so it can miss paths that must wait for the body.
        """
        blocked = {cell: len(body) - 1 - index for index, cell in enumerate(body)}

        def successors(node: tuple[Cell, int]) -> Iterator[tuple[int, tuple[Cell, int]]]:
            last, time = node
            for action in range(4):
                cell = neighbour(last, action)
                free = 0 <= cell[0] < rows and 0 <= cell[1] < columns and blocked.get(cell, 0) <= time
                if free and cell not in seen:
                    seen.add(cell)
                    yield action, (cell, time + 1)

        seen = {body[0]}
        steps = shortest_path((body[0], 0), successors, lambda node: node[0] == goal)
        return None if steps is None else [action for _, action in steps]

    to_food = path(body, food)
    if to_food:
        after = body
        for action in to_food:
            after = moved(after, action, food)
        if len(after) == rows * columns or path(after, after[-1]) is not None:
            return to_food[0]
    room: dict[int, int] = {}
    for action in range(4):
        head, *rest = after = moved(body, action, food)
        if 0 <= head[0] < rows and 0 <= head[1] < columns and head not in rest:
            room[action] = len(path(after, after[-1]) or ())
    return max(room, key=room.__getitem__, default=None)


def moved(body: Body, action: int, food: Cell) -> Body:
    """Return the body after a step; it grows if the step reaches the food."""
    head = neighbour(body[0], action)
    return (head, *(body if head == food else body[:-1]))
