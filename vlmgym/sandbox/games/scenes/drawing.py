"""Images of scenes."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.games.scenes.scene import RADII, Scene, Size, Thing
from vlmgym.sandbox.rendering.canvas import SUPERSAMPLE, Canvas, Colour
from vlmgym.sandbox.rendering.outline import widen
from vlmgym.sandbox.rendering.palette import COLOURS, MIDDLE, THEMES, ThemeName, blend
from vlmgym.sandbox.rendering.shapes import Outline, turned, unit_outline

RIM = 9
"""Width of the gap around an object, which separates equal ones that overlap, in thousandths of the side."""


def paint_scene(scene: Scene, size: int, similarity: float = 0.0, theme: ThemeName = "light") -> NDArray[np.uint8]:
    """A scene as uint8 RGB of shape (size, size, 3).

    Args:
        scene: The objects.
        size: Side in pixels.
        similarity: How alike the colours are, 0 to 0.9.
        theme: Colour of the background.
    """
    frame, background = THEMES[theme].board, THEMES[theme].tile if theme == "light" else THEMES[theme].page
    edge = max(1, size // 320)
    rows = np.full((2, size, 3), frame, np.uint8)  # one of the frame, and one of all others, which are copied at once
    rows[1, edge:-edge] = background
    image = rows[[0] * edge + [1] * (size - 2 * edge) + [0] * edge]
    figures = [Figure.of(thing, size) for thing in scene]
    colours = [blend(COLOURS[thing.colour], MIDDLE, similarity) for thing in scene]
    for figure in figures:  # only where there are objects is there anything to draw
        canvas = figure.window(frame)
        canvas.rectangle(edge, edge, size - 2 * edge, size - 2 * edge, background)
        for other, colour in zip(figures, colours):
            if other.meets(figure):
                other.draw(canvas, colour, background)
        image[figure.top : figure.bottom, figure.left : figure.right] = canvas.pixels()
    return image


class Figure(NamedTuple):
    """An object in an image, and the pixels that it and its rim may change; lengths in pixels.

    Attributes:
        outline: Corners of the object.
        rim: Corners of the gap around it.
        left: First column.
        top: First row.
        right: Column after the last.
        bottom: Row after the last.
    """

    outline: Outline
    rim: Outline
    left: int
    top: int
    right: int
    bottom: int

    @classmethod
    def of(cls, thing: Thing, size: int) -> Figure:
        """An object in an image of size x size."""
        unit = size / 1000
        place = (thing.x * unit, thing.y * unit, RADII[thing.size] * unit, thing.angle)
        outline, rim = turned(unit_outline(thing.shape), *place), turned(_unit_rim(thing.shape, thing.size), *place)
        box = [
            min(max(math.floor(value), 0), size)
            for value in (
                min(x for x, _ in rim) - 0.5 / SUPERSAMPLE,
                min(y for _, y in rim) - 0.5 / SUPERSAMPLE,
                max(x for x, _ in rim) + 0.5 / SUPERSAMPLE + 1,
                max(y for _, y in rim) + 0.5 / SUPERSAMPLE + 1,
            )
        ]
        return cls(outline, rim, *box)

    def meets(self, other: Figure) -> bool:
        """Whether the two may change the same pixels."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def window(self, background: Colour) -> Canvas:
        """A canvas for the pixels that this object may change."""
        return Canvas(self.right - self.left, self.bottom - self.top, background, left=self.left, top=self.top)

    def draw(self, canvas: Canvas, colour: Colour, rim: Colour) -> None:
        """Draw the object and the gap around it."""
        canvas.polygon(self.rim, rim)
        canvas.polygon(self.outline, colour)


@cache
def _unit_rim(shape: str, size: Size) -> Outline:
    return widen(unit_outline(shape), RIM / RADII[size])
