"""Pictures of scenes, and how much of each object can be seen in them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import SUPERSAMPLE, Canvas, Colour, Point
from vlmgym.sandbox.drawing.palette import COLOURS, MIDDLE, THEMES, ThemeName, blend
from vlmgym.sandbox.drawing.shapes import shape_points
from vlmgym.sandbox.scenes.scene import RADII, Scene, Thing

RIM = 9
"""Width of the gap around an object, which separates equal ones that overlap, in thousandths of the side."""
MEASURED = 80
"""Side in pixels of the canvas that visible shares are counted on; each pixel counts 16 times."""
SMOOTH = 40
"""An outline of so many corners is a curve."""


def paint_scene(scene: Scene, size: int, similarity: float = 0.0, theme: ThemeName = "light") -> NDArray[np.uint8]:
    """A scene as uint8 RGB of shape (size, size, 3).

    Args:
        scene: The objects.
        size: Side in pixels.
        similarity: How alike the colours are, 0 to 0.9.
        theme: Colour of the background.
    """
    background = THEMES[theme].tile if theme == "light" else THEMES[theme].page
    canvas = Canvas(size, size, THEMES[theme].board)
    edge = max(1, size // 320)
    canvas.rectangle(edge, edge, size - 2 * edge, size - 2 * edge, background)
    for thing in scene:
        _draw(canvas, thing, blend(COLOURS[thing.colour], MIDDLE, similarity), background)
    return canvas.pixels()


def visible_shares(scene: Scene, crop: float = 0.0) -> list[float]:
    """Which share of each object's area can be seen, neither under others nor cut away, 0 to 1.

    Counted on a canvas of 320 x 320 points, on which objects and their rims are drawn as in the picture.

    Args:
        scene: At most 255 objects.
        crop: Share of width and height that is cut away at the edges.
    """
    canvas = Canvas(MEASURED, MEASURED, (0, 0, 0))
    for number, thing in enumerate(scene, start=1):
        _draw(canvas, thing, (number, 0, 0), (0, 0, 0))
    cut = round(MEASURED * SUPERSAMPLE * crop / 2)
    points = canvas.samples()[..., 0]
    shown = points[cut : len(points) - cut, cut : len(points) - cut]
    seen = np.bincount(shown.ravel(), minlength=len(scene) + 1)
    return [float(seen[number] / _area(thing)) for number, thing in enumerate(scene, start=1)]


@lru_cache(maxsize=4096)
def _area(thing: Thing) -> int:
    """Points of an object that is alone, at its place, because a place between points changes their number."""
    canvas = Canvas(MEASURED, MEASURED, (0, 0, 0))
    canvas.polygon(_outline(canvas, thing), (1, 0, 0))
    return int(np.count_nonzero(canvas.samples()[..., 0]))


def _draw(canvas: Canvas, thing: Thing, colour: Colour, rim: Colour) -> None:
    points, width = _outline(canvas, thing), RIM * canvas.width / 1000
    for start, end in zip(points, [*points[1:], points[0]]):
        canvas.line(start, end, 2 * width, rim)
        if len(points) < SMOOTH:  # corners of the rim are round
            canvas.circle(*start, width, rim)
    canvas.polygon(points, colour)


def _outline(canvas: Canvas, thing: Thing) -> list[Point]:
    unit = canvas.width / 1000
    return shape_points(thing.shape, thing.x * unit, thing.y * unit, RADII[thing.size] * unit, thing.angle)
