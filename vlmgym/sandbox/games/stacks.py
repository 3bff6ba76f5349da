"""Stacks: move blocks between stacks, as in the Tower of Hanoi, from any position."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import permutations
from typing import ClassVar

import numpy as np
from gymnasium import spaces
from pydantic import NonNegativeInt, PositiveInt

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.base import Answer, plain, unreadable
from vlmgym.sandbox.answers.cells import Cell
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step
from vlmgym.sandbox.core.search import distances
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import BLACK, COLOURS, WHITE, Canvas, Colour, Theme, blend

Move = tuple[int, int]
"""Stack from which the upper block is taken, and stack onto which it is put, from 0."""
Position = tuple[int, ...]
"""Stack of each block, from the narrowest block to the widest."""

WALL: Colour = (214, 228, 236)
POLE: Colour = (120, 134, 148)
BASE: Colour = (88, 100, 116)
GOAL: Colour = (30, 150, 80)
BLOCKS = tuple(COLOURS[name] for name in ("red", "orange", "yellow", "green", "cyan", "blue", "purple"))
DARK = (1, 4, 6, 7)
"""Blocks with white numbers."""
MOST_POSITIONS = 5000
_MOVE = re.compile(r"(?:stack )?([0-9]{1,4}) ?(?:to|onto|-?->|\u2192|,) ?(?:stack )?([0-9]{1,4})")

PROMPT_V1 = """\
The image shows {columns} poles with blocks of {rows} different widths. Stacks are numbered from {origin} at the left. \
A move takes the upper block of a stack and puts it on another stack, which must be empty or have a wider block on \
top. Bring all blocks onto the stack with the green base.
Actions: {actions}.
{form}"""

_PERCEPTION = """\
the stacks from top to bottom, one line per level, one entry per stack, comma-separated: block and its width, from 1 \
for the narrowest, or empty"""


class StacksConfig(BoardConfig):
    """Configuration of stacks."""

    rows: int = config_field("reasoning", [2, 3, 4, 5, 6], "Number of blocks.", ge=2, le=7)
    columns: int = config_field("reasoning", 3, "Number of stacks.", ge=3, le=5)
    labels: bool = config_field(
        "perception", [True, False, False, False, False], "Write on each block its width, from 1 for the narrowest."
    )

    def model_post_init(self, context: object) -> None:
        if (positions := self.columns**self.rows) > MOST_POSITIONS:
            raise ValueError(
                f"{self.rows} blocks on {self.columns} stacks have {positions:,} positions; at most {MOST_POSITIONS:,} "
                "are accepted"
            )


@dataclass(frozen=True, slots=True)
class StacksState:
    """Stack of each block, from the narrowest to the widest; goal stack; number of moves needed at first (`par`)."""

    at: Position
    goal: NonNegativeInt
    par: PositiveInt
    variation_seed: int = 0


class StackMove(Answer[Move]):
    """A stack and another one: `0 to 2`. In `vlmgym play`, click on both."""

    form = "stack to stack"
    clicks = 2

    @property
    def sentence(self) -> str:
        """The form, with an example."""
        return f"the stack to take from and the stack to put on, for example {self.format((0, 1))}"

    @cached_property
    def space(self) -> spaces.MultiDiscrete:
        """Both stacks."""
        return spaces.MultiDiscrete([self.config.columns] * 2)

    def parse(self, text: str) -> Move:
        words = plain(text, brackets=True).lower()
        match = _MOVE.fullmatch(" ".join(words.removeprefix("move ").removeprefix("from ").split()))
        if match is None:
            raise unreadable(text, f"two stacks like {self.format((0, 1))}")
        return int(match[1]) - self.config.origin, int(match[2]) - self.config.origin

    def format(self, action: Move) -> str:
        return " to ".join(str(stack + self.config.origin) for stack in action)

    def clicked(self, cells: Sequence[Cell]) -> Move:
        return cells[0][1], cells[1][1]


class Stacks(BoardGame[StacksState, Move]):
    """Move blocks between stacks, as in the Tower of Hanoi, onto the goal.

    Description:
        A block may be put on an empty stack or on a wider block. Blocks start in a random position, not as a tower, and
        the goal is a random stack, so that the well-known solution of the Tower of Hanoi does not help.

    Observation:
        The stacks as an RGB image; the base of the goal is green.

    Action:
        `MultiDiscrete([columns, columns])`: stack to take the upper block from, and stack to put it on, from 0.

    Reward:
        The score is 1 - (moves needed now) / (moves needed at first), but at least 0: 1 if solved. The reward of a turn
        is the change in score, 0 for an illegal or unparsable answer.

    Episode end:
        All blocks are on the goal. Metrics: solved, moves needed.
    """

    name = "stacks"
    statements = re.compile(
        r"The fewest moves to bring all blocks onto stack \d{1,4} are \d{1,4}\."
        r"|I move block \d{1,4} from stack \d{1,4} to stack \d{1,4}\."
    )
    skills = ("planning",)
    joined = True
    reward_is_hint = True
    optimal_oracle = True
    answer = StackMove()
    Config = StacksConfig
    State = StacksState
    prompt_template = PROMPT_V1
    perception_form = _PERCEPTION
    themes: ClassVar = {
        "light": Theme((245, 249, 251), BASE, WALL, WALL, (84, 98, 112)),
        "dark": Theme((18, 26, 34), BASE, (40, 54, 66), WALL, (164, 182, 196)),
    }

    def deal(self, rng: np.random.Generator) -> StacksState:
        c = self.config
        goal = int(rng.integers(c.columns))
        at = (goal,) * c.rows
        while at == (goal,) * c.rows:
            at = tuple(rng.integers(c.columns, size=c.rows).tolist())
        return StacksState(at, goal, moves_needed(c.rows, c.columns, goal)[at])

    def legal_actions(self, state: StacksState) -> tuple[Move, ...]:
        return () if self.ended(state) else tuple(legal_moves(state.at, self.config.columns))

    def step(self, state: StacksState, action: Move, rng: np.random.Generator) -> Step[StacksState]:
        start, end = self.answer.numbers(action, "stack to take from, and stack to put on")
        names = [stack + self.config.origin for stack in (start, end)]
        if not (0 <= start < self.config.columns and 0 <= end < self.config.columns):
            raise IllegalAction(f"there is no stack {names[0 if start not in range(self.config.columns) else 1]}")
        if start == end:
            raise IllegalAction(f"the stacks must be different, both are {names[0]}")
        if start not in state.at:
            raise IllegalAction(f"stack {names[0]} is empty")
        block = state.at.index(start)
        if end in state.at[:block]:
            raise IllegalAction(f"the upper block of stack {names[0]} is wider than that of stack {names[1]}")
        after = replace(state, at=put(state.at, block, end))
        return Step(after, self._score(after) - self._score(state))

    def ended(self, state: StacksState) -> str | None:
        return "all blocks are on the goal" if {*state.at} == {state.goal} else None

    def goal(self, state: StacksState) -> StacksState:
        return replace(state, at=(state.goal,) * self.config.rows)

    def best_action(self, state: StacksState) -> Move | None:
        """First move, of those with the lowest numbers, of a shortest solution."""
        needed = moves_needed(self.config.rows, self.config.columns, state.goal)
        after = {move: put(state.at, state.at.index(move[0]), move[1]) for move in self.legal_actions(state)}
        return min(after, key=lambda move: needed[after[move]], default=None)

    def metrics(self, state: StacksState, infos: Infos) -> Metrics:
        needed = self._needed(state)
        return {"solved": float(needed == 0), "moves needed": float(needed)}

    def cells(self, state: StacksState) -> Grid:
        """Size of the block, 0 without one; whether the cell is at the top or the bottom; whether it is of the goal."""
        rows, columns = self.config.rows, self.config.columns
        piles = [[block + 1 for block, stack in enumerate(state.at) if stack == column] for column in range(columns)]
        padded = [[0] * (rows - len(pile)) + pile for pile in piles]
        return [
            tuple((pile[row], row == 0, row == rows - 1, column == state.goal) for column, pile in enumerate(padded))
            for row in range(rows)
        ]

    def paint_cell(self, canvas: Canvas, cell: tuple[int, bool, bool, bool], angle: float) -> None:
        size, is_top, is_bottom, is_goal = cell
        side, pole = canvas.width, self.tint(POLE)
        canvas.rectangle(side * 0.46, side * 0.3 if is_top else 0, side * 0.08, side, pole)
        canvas.rectangle(side * 0.46, side * 0.3 if is_top else 0, side * 0.03, side, blend(pole, WHITE, 0.35))
        if size:
            self._paint_block(canvas, size, angle)
        if is_bottom:
            canvas.rectangle(0, side * 0.9, side, side * 0.1, self.tint(GOAL if is_goal else BASE))

    def _paint_block(self, canvas: Canvas, size: int, angle: float) -> None:
        side, colour = canvas.width, self.tint(BLOCKS[size - 1])
        width = side * (0.34 + 0.1 * (size - 1))
        left, edge, radius = (side - width) / 2, side * 0.025, side * 0.12
        canvas.rectangle(left, 0, width, side, blend(colour, BLACK, 0.4), radius)
        canvas.rectangle(left + edge, edge, width - 2 * edge, side - 2 * edge, colour, radius)
        shine = width - 2 * radius
        canvas.rectangle(left + radius, side * 0.1, shine, side * 0.1, blend(colour, WHITE, 0.4), side * 0.05)
        if self.config.labels:
            ink = WHITE if size in DARK else BLACK
            canvas.text(str(size), side / 2, side * 0.56, side * 0.2, ink, angle=angle)

    def cell_words(self, cell: tuple[int, bool, bool, bool]) -> str:
        return f"block {cell[0]}" if cell[0] else "empty"

    def explain(self, state: StacksState, action: Move) -> str:
        """State how many moves are needed, and which block moves."""
        block = state.at.index(action[0])
        names = [stack + self.config.origin for stack in action]
        return (
            f"The fewest moves to bring all blocks onto stack {state.goal + self.config.origin} are "
            f"{self._needed(state)}. I move block {block + 1} from stack {names[0]} to stack {names[1]}."
        )

    def _needed(self, state: StacksState) -> int:
        return moves_needed(self.config.rows, self.config.columns, state.goal)[state.at]

    def _score(self, state: StacksState) -> float:
        return max(0.0, 1 - self._needed(state) / state.par)


def legal_moves(at: Position, columns: int) -> list[Move]:
    """List all moves."""
    top = [at.index(stack) if stack in at else len(at) for stack in range(columns)]  # the upper block of each stack
    return [(start, end) for start, end in permutations(range(columns), 2) if top[start] < top[end]]


def put(at: Position, block: int, stack: int) -> Position:
    """Put a block on a stack."""
    return (*at[:block], stack, *at[block + 1 :])


@lru_cache(maxsize=64)
def moves_needed(blocks: int, columns: int, goal: int) -> Mapping[Position, int]:
    """Return the fewest moves from each position to the goal, by breadth-first search; every move can be undone."""
    return distances(
        [(goal,) * blocks], lambda at: (put(at, at.index(start), end) for start, end in legal_moves(at, columns))
    )
