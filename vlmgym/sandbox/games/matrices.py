"""Visual analogies: complete a matrix of figures whose rows follow the same rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vlmgym.sandbox.core.config import TextConfig, config_field
from vlmgym.sandbox.core.game import ImageArray, pick
from vlmgym.sandbox.core.task import ChoiceState, ChoiceTask, TaskConfig
from vlmgym.sandbox.drawing.canvas import LOOKS, Canvas, Colour, LookName, Point
from vlmgym.sandbox.drawing.shapes import paint_plate, turned, unit_outline

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "shape": ("triangle", "heart", "moon", "arrow"),
    "colour": ("red", "blue", "green", "orange"),
    "count": ("1", "2", "3", "4"),
    "size": ("small", "medium", "large"),
    "direction": ("up", "right", "down", "left"),
}
"""Values of each attribute of a cell; counts and sizes are in order."""
LOOK_NAMES: tuple[LookName, ...] = ("plain", "paper")

PROMPT_V1 = """\
The image shows a matrix of 3 x 3 cells without the last one, and below it the cells 1 to {choices}. A cell has one or \
more equal figures: triangles, hearts, moons or arrows, which have a colour, a size (small, medium or large) and a \
direction: that of the tip or, for moons, of the opening. Each of the attributes shape, colour, number, size and \
direction follows a rule, the same in every row: it is constant in the row; or, for number and size, it goes up or \
down by the same step from cell to cell; or the row has the same three values as the other rows, in any order. \
Which of the cells completes the matrix?
Answer with its number.
{form}"""


class MatricesConfig(TextConfig, TaskConfig):
    """Configuration of matrices."""

    rules: int = config_field(
        "reasoning", [1, 2, 3, 4, 5], "Number of attributes that change within rows.", ge=1, le=len(ATTRIBUTES)
    )
    choices: Literal[2, 4, 8] = config_field("reasoning", [2, 4, 4, 8, 8], "Number of cells to choose from.")


@dataclass(frozen=True, kw_only=True)
class MatricesState(ChoiceState):
    """Cells of the matrix, row by row, without the last, and the choices; each has an index for each of `ATTRIBUTES`.

    `rules` has the rule of each attribute.
    """

    look: LookName
    matrix: tuple[Cell, ...]
    options: tuple[Cell, ...]
    rules: tuple[Rule, ...]


Cell = tuple[int, ...]
Rule = Literal["constant", "step", "order"]


class Matrices(ChoiceTask[MatricesState]):
    """Complete a matrix of figures, as in tests of visual analogies.

    Description:
        Five attributes of cells follow a rule each: constant in a row, a constant step (numbers and sizes only), or
        the same three values in each row in another order. Exactly one choice is consistent with the rules that the
        first two rows allow. Choices are all combinations of two values each of one to three attributes.

    Observation:
        An RGB image with the matrix above the numbered choices.

    Action:
        `Discrete(choices, start=1)`: the number of a choice.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metric: accuracy.
    """

    name = "matrices"
    title = "Visual analogies"
    skills = ("perception", "planning")
    Config = MatricesConfig
    State = MatricesState
    prompt_template = PROMPT_V1
    perception_form = (
        "the cells of the matrix, one line per row, then the choices in one line, comma-separated: for each cell "
        "number, size, colour, shape and direction, such as 2 small red arrow left, and ? for the missing cell"
    )

    def generate(self, rng: np.random.Generator) -> MatricesState:
        changing = rng.permutation(len(ATTRIBUTES))[: self.config.rules].tolist()
        columns, rules = [], []
        for index, values in enumerate(ATTRIBUTES.values()):
            rows, rule = _rows(rng, len(values), index in changing, [*ATTRIBUTES][index] in ("count", "size"))
            columns.append([value for row in rows for value in row])
            rules.append(rule)
        cells = [*zip(*columns)]
        options = self._options(rng, cells[-1], changing)
        order = rng.permutation(len(options)).tolist()
        return MatricesState(
            answer=order.index(0) + 1,
            look=pick(rng, LOOK_NAMES),
            matrix=tuple(cells[:-1]),
            options=tuple(options[index] for index in order),
            rules=tuple(rules),
        )

    def _options(self, rng: np.random.Generator, answer: tuple[int, ...], changing: Sequence[int]) -> list[Cell]:
        """Return the answer and wrong choices: all combinations of two values each of some attributes.

        Hence every choice is as similar to the others as the answer is. Changing attributes are preferred.
        """
        options, limits = [answer], [len(values) for values in ATTRIBUTES.values()]
        others = [index for index in range(len(limits)) if index not in changing]
        for index in [*changing, *others][: self.config.choices.bit_length() - 1]:
            other = (answer[index] + int(rng.integers(1, limits[index]))) % limits[index]
            options += [(*cell[:index], other, *cell[index + 1 :]) for cell in options]
        return options

    def describe(self, state: MatricesState) -> str:
        words = [*map(_words, state.matrix), "?"]
        rows = [words[start : start + 3] for start in (0, 3, 6)]
        return "\n".join(", ".join(row) for row in (*rows, map(_words, state.options)))

    def explain(self, state: MatricesState, action: int) -> str:
        named = ", ".join(f"{name} {RULE_WORDS[rule]}" for name, rule in zip(ATTRIBUTES, state.rules))
        cell = _words(state.options[state.answer - 1])
        return f"In each row: {named}. The missing cell is {cell}, which is choice {state.answer}."

    # Drawing --------------------------------------------------------------------------------------------------------

    def paint(self, state: MatricesState) -> list[ImageArray]:
        look = LOOKS[state.look]
        canvas = self.canvas(look.page)
        for index in range(9):
            x, y = _place(index)
            _paint_frame(canvas, x, y, look.ink, look.panel)
            if index < 8:
                _paint_figures(canvas, state.matrix[index], x, y, look.accents)
            else:
                canvas.text("?", x, y, CELL * 0.4, look.ink)
        canvas.rectangle(40, SPLIT, 920, 3, look.faint)
        for number, cell in enumerate(state.options, 1):
            x, y = choice_at(number, len(state.options))
            _paint_frame(canvas, x, y, look.faint, look.panel)
            _paint_figures(canvas, cell, x, y, look.accents)
            paint_plate(canvas, str(number), x - CELL / 2 - 18, y, 40, 56, LABEL * self.config.text, 10)
        return [canvas.pixels()]


RULE_WORDS = {
    "constant": "is constant",
    "step": "changes by the same step",
    "order": "takes the same three values in each row",
}
ARROW: list[Point] = [(0, -1.0), (0.8, -0.1), (0.3, -0.1), (0.3, 0.9), (-0.3, 0.9), (-0.3, -0.1), (-0.8, -0.1)]
BASE_ANGLES = {"heart": 180.0, "moon": 90.0}
"""Angles at which outlines point up, if not 0."""
SIZES = {"small": 0.095, "medium": 0.145, "large": 0.2}
"""Radius of figures relative to the side of a cell."""
SPOTS: tuple[tuple[Point, ...], ...] = (
    ((0, 0),),
    ((-0.23, 0), (0.23, 0)),
    ((-0.23, -0.2), (0.23, -0.2), (0, 0.23)),
    ((-0.23, -0.23), (0.23, -0.23), (-0.23, 0.23), (0.23, 0.23)),
)
"""Centres of the figures in a cell, by their number minus 1, relative to the cell's side."""
CELL = 172
"""Side of a cell in thousandths of the image's side, as all lengths below."""
SPLIT, LABEL = 590, 24


def _place(index: int) -> Point:
    row, column = divmod(index, 3)
    return 500 + (column - 1) * (CELL + 8), 135 + row * (CELL + 8)


def choice_at(number: int, count: int) -> Point:
    """Return the middle of one of `count` choices."""
    across = min(4, -(-count // 2)) if count > 4 else count
    row, column = divmod(number - 1, across)
    inside = min(across, count - row * across)
    return 514 + (column - (inside - 1) / 2) * (CELL + 50), 700 + row * (CELL + 12) + (90 if count <= across else 0)


def _paint_frame(canvas: Canvas, x: float, y: float, edge: Colour, inside: Colour) -> None:
    for reach, colour in ((CELL / 2, edge), (CELL / 2 - 3, inside)):
        canvas.rectangle(x - reach, y - reach, 2 * reach, 2 * reach, colour, 6)


def _paint_figures(canvas: Canvas, cell: tuple[int, ...], x: float, y: float, accents: Sequence[Colour]) -> None:
    values = _values(cell)
    outline = ARROW if values["shape"] == "arrow" else unit_outline(values["shape"])
    angle = -90.0 * ATTRIBUTES["direction"].index(values["direction"]) + BASE_ANGLES.get(values["shape"], 0)
    radius = CELL * SIZES[values["size"]]
    colour = accents[ATTRIBUTES["colour"].index(values["colour"])]
    for dx, dy in SPOTS[int(values["count"]) - 1]:
        canvas.polygon(turned(outline, x + dx * CELL, y + dy * CELL, radius, angle), colour)


def _values(cell: tuple[int, ...]) -> dict[str, str]:
    return {name: values[index] for (name, values), index in zip(ATTRIBUTES.items(), cell)}


def _words(cell: tuple[int, ...]) -> str:
    values = _values(cell)
    return " ".join(values[name] for name in ("count", "size", "colour", "shape", "direction"))


# Rules ----------------------------------------------------------------------------------------------------------------

Row = tuple[int, int, int]


def _rows(rng: np.random.Generator, limit: int, changes: bool, ordered: bool) -> tuple[list[Row], Rule]:
    """Draw three rows of an attribute with values below `limit`, whose last value follows from the others."""
    if not changes:
        values = [int(value) for value in rng.integers(limit, size=3)]
        if rng.random() < 0.5:
            values = values[:1] * 3
        return [(value, value, value) for value in values], "constant"
    step = pick(rng, (-1, 1)) if ordered and rng.random() < 0.5 else 0
    values = rng.permutation(limit)[:3].tolist()
    while True:
        if step:
            starts = [start for start in range(limit) if 0 <= start + 2 * step < limit]
            rows = [(start, start + step, start + 2 * step) for start in (pick(rng, starts) for _ in range(3))]
        else:
            rows = [tuple(values[i] for i in rng.permutation(3)) for _ in range(3)]
        if predictions(rows[0], rows[1], rows[2][:2], ordered) == {rows[2][2]} and (step or rows[0] != rows[1]):
            return rows, "step" if step else "order"


def predictions(first: Row, second: Row, start: Sequence[int], ordered: bool) -> set[int]:
    """Return the last values of a row that starts like this, by every rule that the first two rows follow."""
    possible = set()
    if len({*first}) == len({*second}) == len({*start}) == 1:
        possible.add(start[0])
    steps = [(b - a, c - b) for a, b, c in (first, second)]
    if ordered and len({*steps[0], *steps[1]}) == 1 and start[1] - start[0] == steps[0][0]:
        possible.add(2 * start[1] - start[0])
    if {*first} == {*second} and {*start} < {*first} and len({*first}) == 3:
        possible.update({*first} - {*start})
    return possible
