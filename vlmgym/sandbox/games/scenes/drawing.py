"""Rendering of scenes."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import SUPERSAMPLE, Canvas, Colour
from vlmgym.sandbox.drawing.palette import COLOURS, MIDDLE, THEMES, ThemeName, blend
from vlmgym.sandbox.drawing.shapes import Outline, turned, unit_outline, widen
from vlmgym.sandbox.games.scenes.scene import RADII, Scene, SceneObject, Size

RIM = 9
"""Width of the gap around each object, in thousandths of the image's side.

It separates overlapping objects of the same colour.
"""


def paint_scene(scene: Scene, size: int, similarity: float = 0.0, theme: ThemeName = "light") -> NDArray[np.uint8]:
    """Draw a scene: uint8 (size, size, 3)."""
    frame, background = THEMES[theme].board, THEMES[theme].tile if theme == "light" else THEMES[theme].page
    edge = max(1, size // 320)
    rows = np.full((2, size, 3), frame, np.uint8)  # the two distinct rows of an empty scene; fancy indexing copies them
    rows[1, edge:-edge] = background
    image = rows[[0] * edge + [1] * (size - 2 * edge) + [0] * edge]
    figures = [Figure.of(item, size) for item in scene]
    colours = [blend(COLOURS[item.colour], MIDDLE, similarity) for item in scene]
    for figure in figures:  # draw only around the objects
        canvas = figure.canvas(frame)
        canvas.rectangle(edge, edge, size - 2 * edge, size - 2 * edge, background)
        for other, colour in zip(figures, colours):
            if other.overlaps(figure):
                other.draw(canvas, colour, background)
        image[figure.top : figure.bottom, figure.left : figure.right] = canvas.pixels()
    return image


class Figure(NamedTuple):
    """An object in an image, in pixels.

    Attributes:
        outline: Outline of the object.
        rim: Outline of the gap around the object.
        left: First column of the rim's bounding box, clipped to the image.
        top: First row of the box.
        right: One past the last column of the box.
        bottom: One past the last row of the box.
    """

    outline: Outline
    rim: Outline
    left: int
    top: int
    right: int
    bottom: int

    @classmethod
    def of(cls, item: SceneObject, size: int) -> Figure:
        """Compute the figure of an object in an image of size x size."""
        unit = size / 1000
        place = (item.x * unit, item.y * unit, RADII[item.size] * unit, item.angle)
        outline, rim = turned(unit_outline(item.shape), *place), turned(_unit_rim(item.shape, item.size), *place)
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

    def overlaps(self, other: Figure) -> bool:
        """True if the bounding boxes overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def canvas(self, background: Colour) -> Canvas:
        """Create a canvas that covers the bounding box."""
        return Canvas(self.right - self.left, self.bottom - self.top, background, left=self.left, top=self.top)

    def draw(self, canvas: Canvas, colour: Colour, rim: Colour) -> None:
        """Draw the object and the gap around it."""
        canvas.polygon(self.rim, rim)
        canvas.polygon(self.outline, colour)


@cache
def _unit_rim(shape: str, size: Size) -> Outline:
    return widen(unit_outline(shape), RIM / RADII[size])
