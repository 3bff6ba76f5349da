"""Blocks: count the cubes of a stack, or the squares that a view of it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt

from vlmgym.sandbox.answers.choice import Number
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray, pick
from vlmgym.sandbox.core.task import VERBS, ChoiceState, ChoiceTask, TaskConfig
from vlmgym.sandbox.drawing.canvas import BLACK, COLOURS, WHITE, Canvas, Colour, Point, blend
from vlmgym.sandbox.drawing.shapes import Face, cube_faces, paint_faces, project

Heights = tuple[tuple[int, ...], ...]
"""Height of each column of cubes in cubes: rows from the back to the front, each from left to right."""
Kind = Literal["cubes", "front", "right", "missing"]

QUESTIONS: Mapping[Kind, str] = {
    "cubes": "How many cubes are there?",
    "front": "Looking horizontally from the front, how many squares (faces of cubes in the outline) do you see?",
    "right": "Looking horizontally from the right, how many squares (faces of cubes in the outline) do you see?",
    "missing": "How many more cubes fill the smallest box around the stack that covers the whole floor and is as high "
    "as the highest column?",
}
KINDS = tuple(QUESTIONS)
PAINTS: Sequence[Colour] = tuple(COLOURS[name] for name in ("orange", "blue", "green", "purple", "red", "cyan"))
ROOMS: Sequence[tuple[Colour, Colour]] = (
    ((226, 236, 242), (246, 250, 252)),
    ((244, 234, 220), (253, 249, 242)),
    ((52, 58, 74), (92, 100, 120)),
    ((226, 240, 228), (247, 252, 247)),
)
"""Colours of wall and floor."""

PROMPT_V1 = """\
The image shows cubes on a floor of {rows} rows and {columns} columns of squares. Every cube lies on the floor or on \
another cube, and the top of every column of cubes, or the floor square without one, is at least half visible. Two \
sides of the floor are labelled FRONT and RIGHT. {question}
Answer with the number.
{form}"""


class BlocksConfig(TaskConfig):
    """Configuration of blocks."""

    rows: int = config_field("reasoning", [2, 2, 3, 4, 5], "Rows of columns of cubes.", ge=1, le=6)
    columns: int = config_field("reasoning", [2, 3, 3, 4, 5], "Columns of cubes in a row.", ge=1, le=6)
    height: int = config_field("reasoning", [2, 3, 3, 4, 5], "Maximum height of a column.", ge=1, le=6)
    kinds: int = config_field(
        "reasoning", [1, 2, 3, 4, 4], "Kinds of question: cubes, front, right, missing, in this order.", ge=1, le=4
    )
    colouring: Literal["layers", "plain", "mixed"] = config_field(
        "perception",
        ["layers", "layers", "plain", "plain", "mixed"],
        "Colours of the cubes: one per height, one for all, or random ones.",
    )
    shading: float = config_field(
        "perception", [1.0, 0.9, 0.8, 0.5, 0.3], "Difference in brightness of the sides of a cube.", ge=0.1, le=1.0
    )


@dataclass(frozen=True, kw_only=True)
class BlocksState(ChoiceState):
    """A stack and a question about it; `look` selects its colours."""

    kind: Kind
    heights: Heights
    look: NonNegativeInt


class Blocks(ChoiceTask[BlocksState]):
    """Count the cubes of a stack, or the squares that a view of it shows.

    Description:
        Columns of cubes stand on a floor. No column hides another one completely: at least one of the two triangles
        that make up the top of each column is visible, which determines all heights. Questions ask for the number of
        cubes, for the number of squares in the view from the front or from the right, or for the number of cubes
        missing from a full box.

    Observation:
        The stack from above, from the front right, as an RGB image.

    Action:
        `Discrete(rows * columns * height + 1)`: the number, from 0.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metric: accuracy.
    """

    name = "blocks"
    skills = ("spatial", "arithmetic")
    answer = Number(lambda config: range(config.rows * config.columns * config.height + 1), verbs=VERBS)
    Config = BlocksConfig
    State = BlocksState
    prompt_template = PROMPT_V1
    perception_form = (
        "the heights of the columns in cubes, one line per row from the back to the front, each from left to right as "
        "seen from the front, comma-separated"
    )

    def generate(self, rng: np.random.Generator) -> BlocksState:
        c = self.config
        kind = KINDS[int(rng.integers(c.kinds))]
        heights = make_heights(c.rows, c.columns, c.height, rng)
        look = int(rng.integers(len(PAINTS) * len(ROOMS)))
        return BlocksState(kind=kind, heights=heights, look=look, answer=solve(kind, heights))

    def describe(self, state: BlocksState) -> str:
        """Heights of the columns, one line per row."""
        return "\n".join(", ".join(map(str, row)) for row in state.heights)

    def prompt(self, state: BlocksState) -> str:
        return self.fill_prompt(question=QUESTIONS[state.kind])

    def explain(self, state: BlocksState, action: int) -> str:
        heights = state.heights
        if state.kind == "cubes":
            sums = [str(sum(row)) for row in heights]
            return f"The rows from the back have {', '.join(sums)} cubes, {solve('cubes', heights)} in all."
        if state.kind == "missing":
            cells, high = sum(map(len, heights)), max(map(max, heights))
            full = f"The box has {cells} x {high} = {cells * high} cubes"
            return f"{full}, and there are {solve('cubes', heights)}: {solve('missing', heights)} are missing."
        lines = zip(*heights) if state.kind == "front" else reversed(heights)
        tops = [str(max(line)) for line in lines]
        return f"From the {state.kind}, the highest columns from left to right are {', '.join(tops)}."

    # Image ----------------------------------------------------------------------------------------------------------

    def paint(self, state: BlocksState) -> list[ImageArray]:
        size = self.config.size
        wall, floor = ROOMS[state.look // len(PAINTS)]
        canvas = Canvas(size, size, wall)
        (x, y), edge = self.layout
        outline = blend(floor, BLACK, 0.35) if sum(floor) > 400 else blend(floor, BLACK, 0.5)
        paint_faces(canvas, list(self._floor(floor, wall)), x, y, edge, outline)
        paint_faces(canvas, list(self._cubes(state)), x, y, edge, (34, 36, 44))
        ink = blend(wall, BLACK, 0.6) if sum(wall) > 400 else blend(wall, WHITE, 0.6)
        for word, angle, (right, down) in (
            ("FRONT", -30, project(self.config.columns / 2, self.config.rows + 0.45, -0.35)),
            ("RIGHT", 30, project(self.config.columns + 0.45, self.config.rows / 2, -0.35)),
        ):
            canvas.text(word, x + edge * right, y + edge * down, size / 40, ink, angle=angle)
        return [canvas.pixels()]

    @property
    def layout(self) -> tuple[Point, float]:
        """Pixels of the back corner of the floor, and the edge of a cube in pixels."""
        c = self.config
        wide, high = (c.rows + c.columns) * 0.866, (c.rows + c.columns) / 2 + c.height
        edge = c.size * 0.84 / max(wide, high + 0.3)
        left = c.size / 2 - (c.columns - c.rows) * 0.433 * edge
        return (left, (c.size - edge * (high + 0.3)) / 2 + edge * c.height), edge

    def _floor(self, floor: Colour, wall: Colour) -> list[Face]:
        """Squares of the floor, which is a flat slab."""
        c, thick = self.config, 0.3
        corners = (project(0, c.rows, 0), project(c.columns, c.rows, 0), project(c.columns, 0, 0))
        lower = [(px, py + thick) for px, py in corners]
        faces: list[Face] = [
            (blend(floor, BLACK, 0.18), [corners[0], corners[1], lower[1], lower[0]]),
            (blend(floor, BLACK, 0.32), [corners[1], corners[2], lower[2], lower[1]]),
        ]
        squares = [cube_faces(column, row, -1)[0] for row in range(c.rows) for column in range(c.columns)]
        return faces + [(floor, square) for square in squares]

    def _cubes(self, state: BlocksState) -> list[Face]:
        """Visible sides of all cubes, from back to front."""
        heights, faces = np.pad(state.heights, ((0, 1), (0, 1))).tolist(), []
        for row, column in sorted(np.ndindex(self.config.rows, self.config.columns), key=sum):
            beside, right = heights[row + 1][column], heights[row][column + 1]
            for z in range(heights[row][column]):
                top, left_face, right_face = cube_faces(column, row, z)
                light, middle, dark = self._shades(state, row, column, z)
                if z >= beside:
                    faces.append((middle, left_face))
                if z >= right:
                    faces.append((dark, right_face))
                if z == heights[row][column] - 1:
                    faces.append((light, top))
        return faces

    def _shades(self, state: BlocksState, row: int, column: int, z: int) -> tuple[Colour, Colour, Colour]:
        """Colours of the upper, left and right side of a cube."""
        first = state.look % len(PAINTS)
        number = {"layers": z, "plain": 0, "mixed": (7 * row + 5 * column + 3 * z + state.look) % 11}
        paint = PAINTS[(first + number[self.config.colouring]) % len(PAINTS)]
        strength = self.config.shading
        return blend(paint, WHITE, 0.45 * strength), paint, blend(paint, BLACK, 0.4 * strength)


def solve(kind: Kind, heights: Heights) -> int:
    """Answer a question."""
    if kind == "front":
        return sum(map(max, zip(*heights)))
    if kind == "right":
        return sum(map(max, heights))
    cubes = sum(map(sum, heights))
    return cubes if kind == "cubes" else sum(map(len, heights)) * max(map(max, heights)) - cubes


def make_heights(rows: int, columns: int, highest: int, rng: np.random.Generator) -> Heights:
    """Build columns at random from the front to the back, none of which is hidden; at least one has a cube."""
    heights = [[0] * columns for _ in range(rows)]
    for row, column in sorted(np.ndindex(rows, columns), key=sum, reverse=True):
        clear = []
        for heights[row][column] in range(highest + 1):
            if visible_halves(heights, row, column):
                clear.append(heights[row][column])
        heights[row][column] = pick(rng, clear)
    heights[0][0] = heights[0][0] or highest
    return tuple(map(tuple, heights))


def visible_halves(heights: Sequence[Sequence[int]], row: int, column: int) -> int:
    """Return how many of the two triangles of a column's top are visible, 0 to 2.

    The line of sight from a point of the top rises by as much as it goes forwards and to the right. It therefore passes
    the columns on the diagonal, and those on one side of it; all of them must be lower than it is there.
    """
    top = heights[row][column]

    def hides(down: int, across: int, rise: int) -> bool:
        inside = row + down < len(heights) and column + across < len(heights[0])
        return inside and heights[row + down][column + across] >= top + rise

    reach = range(max(len(heights), len(heights[0])))
    if any(hides(k + 1, k + 1, k + 1) for k in reach):
        return 0
    return 2 - any(hides(k + 1, k, k + 1) for k in reach) - any(hides(k, k + 1, k + 1) for k in reach)
