"""Hidden-rule grids in the manner of ARC: apply to a grid what examples show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import TextConfig, config_field
from vlmgym.sandbox.core.game import ImageArray, pick
from vlmgym.sandbox.core.perception import read_grid
from vlmgym.sandbox.core.task import LineState, LineTask, TaskConfig
from vlmgym.sandbox.drawing.canvas import LOOKS, Canvas, Colour, LookName, Point
from vlmgym.sandbox.drawing.shapes import paint_plate

NAMES = ("black", "blue", "red", "green", "yellow")
COLOURS: tuple[Colour, ...] = ((22, 23, 28), (38, 116, 226), (218, 52, 46), (58, 168, 72), (248, 208, 38))
EXAMPLES = 3
LOOK_NAMES: tuple[LookName, ...] = ("plain", "slate", "paper")

PROMPT_V1 = """\
The image shows {examples} pairs of grids with {side} x {side} cells in the colours {colours}. The same rule turns the \
left grid of each pair into the right one. {question}
Answer with the rows of this grid from top to bottom, separated by semicolons, and the colours of the cells of a row, \
separated by commas, such as {example}.
{form}"""


class GridsConfig(TextConfig, TaskConfig):
    """Configuration of grids."""

    side: int = config_field("reasoning", [3, 4, 5, 6, 7], "Rows and columns of a grid.", ge=3, le=8)
    colours: int = config_field("reasoning", [2, 3, 3, 4, 4], "Number of colours other than black.", ge=2, le=4)
    steps: int = config_field(
        "reasoning", [1, 1, 1, 2, 2], "Number of rules applied in turn: the second changes colours.", ge=1, le=2
    )


@dataclass(frozen=True, kw_only=True)
class GridsState(LineState):
    """Examples and the grid of the question, as colour indices; `kind` names the first rule, `rule` the whole one."""

    rule: str
    examples: tuple[tuple[Grid, Grid], ...]
    test: Grid
    look: LookName


class Grids(LineTask[GridsState]):
    """Find the rule of some examples and apply it to another grid, as in the Abstraction and Reasoning Corpus.

    Description:
        Rules mirror, rotate or shift grids, let colours fall to a side, or change colours; `steps=2` applies a rule of
        the former kinds and then a change of colours. All rules that fit the examples give the same answer, and with
        `steps=2`, no single rule fits them.

    Observation:
        An RGB image.

    Action:
        One line of text: the colours of all cells, row by row.

    Reward:
        1 if all cells are correct; 0 otherwise and if unparsable.

    Episode end:
        After one turn. Metrics: `accuracy`, also for each kind of rule.
    """

    name = "grids"
    title = "Hidden-rule grids"
    skills = ("perception", "spatial")
    attempts = 2000
    Config = GridsConfig
    State = GridsState
    prompt_template = PROMPT_V1
    perception_form = (
        "the grids from top to bottom, left before right, one line per row, with the colours comma-separated"
    )
    answer = Line(
        "the rows, separated by semicolons", lambda config: (NAMES[: config.colours + 1], config.side), longest=800
    )

    def generate(self, rng: np.random.Generator) -> GridsState | None:
        c = self.config
        rules = all_rules(c.colours)
        move, change = pick(rng, [*MOVES]), pick(rng, [*changes(c.colours)])
        name = f"{move}, then {change}" if c.steps == 2 else pick(rng, (move, change))
        rule = rules[name]
        grids = [_random_grid(rng, c.side, c.colours) for _ in range(EXAMPLES + 1)]
        outputs = [rule(grid) for grid in grids]
        if any(grid == output for grid, output in zip(grids, outputs)):
            return None
        *examples, (test, answer) = zip(grids, outputs)
        for other, apply in rules.items():
            fits = all(apply(grid) == output for grid, output in examples)
            if fits and (apply(test) != answer or (c.steps == 2 and ", then" not in other)):
                return None
        return GridsState(
            kind=name.split()[0],
            question="What does it make of the last grid, at the bottom?",
            answer="; ".join(", ".join(row) for row in _words(answer)),
            reason=f"In all examples, the rule is: {name}.",
            rule=name,
            examples=tuple(examples),
            test=test,
            look=pick(rng, LOOK_NAMES),
        )

    def is_correct(self, state: GridsState, action: str) -> bool:
        return read_grid(action.replace(";", "\n")) == read_grid(state.answer.replace(";", "\n"))

    def prompt(self, state: GridsState) -> str:
        c = self.config
        names = NAMES[: c.colours + 1]
        rows = (", ".join(names[(row + column) % 3] for column in range(c.side)) for row in range(2))
        return self.fill_prompt(
            question=state.question,
            examples=EXAMPLES,
            colours=", ".join(names),
            example=f"{'; '.join(rows)}; and so on",
        )

    def describe(self, state: GridsState) -> str:
        grids = [grid for pair in state.examples for grid in pair]
        return "\n".join(", ".join(row) for grid in (*grids, state.test) for row in _words(grid))

    # Drawing --------------------------------------------------------------------------------------------------------

    def paint(self, state: GridsState) -> list[ImageArray]:
        look = LOOKS[state.look]
        canvas = self.canvas(look.page)
        for row, (grid, output) in enumerate([*state.examples, (state.test, None)]):
            y = ABOVE + row * (BOX + GAP)
            if output is None:
                canvas.rectangle(0, y - GAP * 0.65, 1000, 1000, look.panel)
            self._paint_grid(canvas, grid, LEFT, y, look.faint)
            middle, x = y + BOX / 2, LEFT + BOX + 45
            canvas.rectangle(x, middle - 5, 60, 10, look.ink)
            canvas.polygon([(x + 55, middle - 20), (x + 90, middle), (x + 55, middle + 20)], look.ink)
            if output is None:
                canvas.text("?", RIGHT + BOX / 2, middle, 90, look.ink)
            else:
                self._paint_grid(canvas, output, RIGHT, y, look.faint)
            paint_plate(canvas, LABELS[row], *label_at(row), 64, 64, TEXT * self.config.text, 32)
        return [canvas.pixels()]

    def _paint_grid(self, canvas: Canvas, grid: Grid, left: float, top: float, lines: Colour) -> None:
        cell, line = BOX / self.config.side, max(1 / canvas.unit, 2.5)
        canvas.rectangle(left, top, BOX + line, BOX + line, lines)
        for row, values in enumerate(grid):
            for column, value in enumerate(values):
                x, y = left + column * cell + line, top + row * cell + line
                canvas.rectangle(x, y, cell - line, cell - line, COLOURS[value])


LABELS = ("1", "2", "3", "4")
BOX, GAP, ABOVE, LEFT, RIGHT, TEXT = 205, 30, 46, 200, 590, 30
"""Lengths in thousandths of the image's side: side of a grid, gaps, position of the grids, cap height of labels."""


def label_at(row: int) -> Point:
    """Return the middle of the plate of a row."""
    return 110, ABOVE + row * (BOX + GAP) + BOX / 2


# Rules ----------------------------------------------------------------------------------------------------------------

Grid = tuple[tuple[int, ...], ...]
Rule = Callable[[Grid], Grid]


def _words(grid: Grid) -> list[list[str]]:
    return [[NAMES[cell] for cell in row] for row in grid]


def _random_grid(rng: np.random.Generator, side: int, colours: int) -> Grid:
    """Draw a grid, about half of it black."""
    coloured, cells = rng.random((side, side)) < 0.45, rng.integers(1, colours + 1, (side, side))
    return tuple(map(tuple, (cells * coloured).tolist()))


def _transposed(grid: Grid) -> Grid:
    return tuple(zip(*grid))


def _mirrored(grid: Grid) -> Grid:
    return tuple(row[::-1] for row in grid)


def _fallen(grid: Grid) -> Grid:
    """Move the colours of each row to its end, in the same order."""
    return tuple((0,) * row.count(0) + tuple(filter(None, row)) for row in grid)


def _shifted(grid: Grid) -> Grid:
    return tuple((*row[-1:], *row[:-1]) for row in grid)


MOVES: Mapping[str, Rule] = {
    "mirror left and right": _mirrored,
    "mirror top and bottom": lambda grid: grid[::-1],
    "mirror along the diagonal from the upper left": _transposed,
    "rotate by a quarter turn clockwise": lambda grid: _mirrored(_transposed(grid)),
    "rotate by a quarter turn counter-clockwise": lambda grid: _transposed(_mirrored(grid)),
    "rotate by a half turn": lambda grid: _mirrored(grid[::-1]),
    "fall to the right": _fallen,
    "fall to the left": lambda grid: _mirrored(_fallen(_mirrored(grid))),
    "fall to the bottom": lambda grid: _transposed(_fallen(_transposed(grid))),
    "fall to the top": lambda grid: _transposed(_mirrored(_fallen(_mirrored(_transposed(grid))))),
    "shift right by one column, with the last column going first": _shifted,
    "shift down by one row, with the last row going first": lambda grid: (*grid[-1:], *grid[:-1]),
}
"""Rules that move cells, by name."""


def _recolour(table: tuple[int, ...]) -> Rule:
    return lambda grid: tuple(tuple([table[cell] for cell in row]) for row in grid)


@lru_cache
def changes(colours: int) -> Mapping[str, Rule]:
    """Return the rules that change colours, by name."""
    same, rules = range(colours + 1), {}
    for a, b in permutations(same, 2):
        if a < b:
            swapped = tuple({a: b, b: a}.get(cell, cell) for cell in same)
            rules[f"swap {NAMES[a]} and {NAMES[b]}"] = _recolour(swapped)
        rules[f"change {NAMES[a]} to {NAMES[b]}"] = _recolour(tuple(b if cell == a else cell for cell in same))
    return rules


@lru_cache
def all_rules(colours: int) -> Mapping[str, Rule]:
    """Return all rules: moves, changes of colours, and a move followed by a change."""

    def chained(move: Rule, change: Rule) -> Rule:
        return lambda grid: change(move(grid))

    both = {
        f"{first}, then {second}": chained(move, change)
        for first, move in MOVES.items()
        for second, change in changes(colours).items()
    }
    return {**MOVES, **changes(colours), **both}
