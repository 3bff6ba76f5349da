"""Mental rotation: find the rotated copy of a figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vlmgym.errors import GenerationError, StateError
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.perception import Part, Perception
from vlmgym.sandbox.core.task import TaskConfig
from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.games.choices import ChoiceState, ChoiceTask
from vlmgym.sandbox.games.rotation.drawing import BLACK, extent, faces, paint
from vlmgym.sandbox.games.rotation.figures import Figure, canonical, grow, is_clear, mirrored, vary, views

PAGE: Colour = (250, 248, 243)
FRAME: Colour = (187, 176, 164)
ATTEMPTS = 10_000
ANGLE = 15
"""Flat figures are rotated by a multiple of this many degrees."""
NOT_DESCRIBED = "not described"

PROMPT_V1 = """\
The image shows a figure made of {cells} equal {kind} in the top row, and below it the figures 1 to {choices}. Exactly \
one of them is the figure in the top row, only rotated{how}; the others are its mirror image or have another shape. \
Which one?
Answer with its number.
{form}"""


class RotationConfig(TaskConfig):
    """Configuration of mental rotation."""

    solid: bool = config_field(
        "reasoning", [False, False, True, True, True], "Figures of cubes in space instead of squares in the plane."
    )
    cells: int = config_field("reasoning", [4, 5, 5, 6, 8], "Number of cubes or squares of a figure.", ge=4, le=10)
    choices: int = config_field("reasoning", [2, 3, 4, 5, 6], "Number of figures to choose from.", ge=2, le=6)


@dataclass(frozen=True, kw_only=True)
class RotationState(ChoiceState):
    """The figure and the choices; solid figures are already rotated, flat figures are drawn at `angles` in degrees."""

    figures: tuple[Figure, ...]
    angles: tuple[int, ...]


class Rotation(ChoiceTask[RotationState]):
    """Find the rotated copy of a figure.

    Description:
        A figure is a random connected set of squares or cubes that differs from its mirror image. One choice is the
        figure in another orientation, one is its mirror image, and the others have one cell in another place or are
        mirror images of such figures. In solid figures, every cube is at least partly visible, and moving any single
        cube would change the image. Solid figures are rotated about any axis, flat figures by multiples of 15 degrees.

    Observation:
        An RGB image with the figure above the numbered choices.

    Action:
        `Discrete(choices, start=1)`: the number of a choice.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metric: accuracy.
    """

    name = "rotation"
    title = "Mental rotation"
    skills = ("spatial",)
    Config = RotationConfig
    State = RotationState
    prompt_template = PROMPT_V1
    generated_field = "figures"

    def generate(self, rng: np.random.Generator) -> RotationState:
        for _ in range(ATTEMPTS):
            made = self._attempt(rng)
            if made is not None:
                return made
        raise GenerationError(f"rotation: no figure of {self.config.cells} cells was found in {ATTEMPTS} attempts")

    def _attempt(self, rng: np.random.Generator) -> RotationState | None:
        c = self.config
        figure = grow(rng, c.cells, c.solid)
        own, mirror = canonical(figure, c.solid), mirrored(figure)
        if own == canonical(mirror, c.solid) or (c.solid and not (all(map(max, zip(*figure))) and is_clear(figure))):
            return None  # symmetric, flat or unclear
        shapes, known = [mirror], {own, canonical(mirror, c.solid)}
        for _ in range(20 * c.choices):
            if len(shapes) == c.choices - 1:
                break
            other = vary(rng, figure, c.solid)
            if other is not None and rng.random() < 0.5:
                other = mirrored(other)
            if other is not None and canonical(other, c.solid) not in known:
                shapes.append(other)
                known.add(canonical(other, c.solid))
        order = rng.permutation(c.choices).tolist()
        choices = [self._turned(rng, ([figure, *shapes])[index], figure) for index in order if index <= len(shapes)]
        if len(shapes) < c.choices - 1 or None in choices:
            return None
        angle = ANGLE * int(rng.integers(24))
        angles = [0 if c.solid else (angle + ANGLE * int(rng.integers(3, 22))) % 360 for _ in choices]
        return RotationState(
            answer=order.index(0) + 1,
            figures=(figure, *(choice for choice in choices if choice is not None)),
            angles=(0 if c.solid else angle, *angles),
        )

    def _turned(self, rng: np.random.Generator, shape: Figure, figure: Figure) -> Figure | None:
        """Return a flat shape unchanged, or a random clear view of a solid shape.

        The view differs from `figure`; None if there is no such view.
        """
        if not self.config.solid:
            return shape
        clear = [view for view in views(shape) if view != figure]
        return clear[int(rng.integers(len(clear)))] if clear else None

    def paint(self, state: RotationState) -> list[ImageArray]:
        drawn = [faces(figure, angle, self.config.solid) for figure, angle in zip(state.figures, state.angles)]
        edge = self._side * 0.68 / max(map(extent, drawn))
        image = self._background.copy()
        for number, ((x, y), figure) in enumerate(zip(self._centres, drawn)):
            reach = edge * extent(figure) / 2 + edge / 16 + 1
            left, top, side = int(x - reach), int(y - reach), int(2 * reach) + 2
            canvas = Canvas(side, side, PAGE if number else FRAME, left=left, top=top)  # a small canvas is fast
            paint(canvas, figure, x, y, edge)
            self._paint_label(canvas, number)
            image[top : top + side, left : left + side] = canvas.pixels()
        return [image]

    @cached_property
    def _background(self) -> ImageArray:
        canvas = Canvas(self.config.size, self.config.size, PAGE)
        canvas.rectangle(0, 0, self.config.size, self._side, FRAME)
        for number in range(self.config.choices + 1):
            self._paint_label(canvas, number)
        return canvas.pixels()

    def _paint_label(self, canvas: Canvas, number: int) -> None:
        if number:
            canvas.text(str(number), *self._label(number), self.config.size / 26, BLACK)

    def parts(self, state: RotationState) -> list[Part]:
        radius = self.config.size / 24
        return [self.part(str(number), *self._label(number), radius) for number in range(1, self.config.choices + 1)]

    def describe(self, state: RotationState) -> str:
        return NOT_DESCRIBED

    @property
    def no_text_observation(self) -> str:
        return "its figures are not described"

    def perceive(self, state: RotationState, text: str) -> Perception | None:
        return None

    def prompt(self, state: RotationState) -> str:
        solid = self.config.solid
        return self.fill_prompt(
            "what the figures look like",
            "number",
            kind="cubes, each at least partly visible," if solid else "squares",
            how=" in space" if solid else " in the plane",
        )

    def explain(self, state: RotationState, action: int) -> str:
        if action == state.answer:
            return f"Figure {action} is the figure in the top row, rotated."
        mirror = canonical(mirrored(state.figures[0]), self.config.solid)
        same = canonical(state.figures[action], self.config.solid) == mirror
        return (
            f"Figure {action} is {'the mirror image of' if same else 'another shape than'} the figure in the top row."
        )

    def check_state(self, state: RotationState) -> None:
        super().check_state(state)
        c = self.config
        sizes = [len(set(figure)) for figure in state.figures]
        if sizes != [c.cells] * (c.choices + 1) or len(state.angles) != len(sizes):
            raise StateError(f"must have {c.choices + 1} figures of {c.cells} cells")
        forms = [canonical(figure, c.solid) for figure in state.figures]
        if [number for number in range(1, len(forms)) if forms[number] == forms[0]] != [state.answer]:
            raise StateError(f"{state.answer} is not the only rotated figure")

    @property
    def _columns(self) -> int:
        return 2 if self.config.choices in (2, 4) else 3

    @property
    def _side(self) -> float:
        """Side of the square around a figure, in pixels."""
        return float(self.config.size / max(self._columns, 1 + math.ceil(self.config.choices / self._columns)))

    @property
    def _centres(self) -> list[tuple[float, float]]:
        size, side, columns = self.config.size, self._side, self._columns
        rows = [divmod(index, columns) for index in range(self.config.choices)]
        return [(size / 2, side / 2), *((size / columns * (c + 0.5), side * (r + 1.5)) for r, c in rows)]

    def _label(self, number: int) -> tuple[float, float]:
        """Centre (x, y) of the number drawn next to a choice, in pixels."""
        x, y = self._centres[number]
        inset = self.config.size / 22
        return x - self.config.size / self._columns / 2 + inset, y - self._side / 2 + inset
