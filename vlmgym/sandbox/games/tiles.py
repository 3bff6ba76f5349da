"""Tiles with coloured shapes, such as `red circle`, shared by several games."""

from __future__ import annotations

from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.drawing.palette import COLOURS, MIDDLE, THEMES, ThemeName, blend
from vlmgym.sandbox.drawing.shapes import draw_shape

EMPTY = "empty"
"""Name of a cell without a tile."""

COLOUR_NAMES = ("red", "blue", "green", "yellow", "purple", "cyan", "orange", "pink")
SHAPE_NAMES = ("circle", "square", "triangle", "star", "diamond", "heart", "moon", "cross")
"""Games that need n colours or n shapes use the first n of these."""

MAX_COLOURS = len(COLOUR_NAMES)
MAX_SHAPES = len(SHAPE_NAMES)


def tile_kinds(colours: int, shapes: int) -> tuple[str, ...]:
    """Return the names of all tiles with the first `colours` colours and `shapes` shapes, such as `red circle`."""
    return tuple(f"{colour} {shape}" for colour in COLOUR_NAMES[:colours] for shape in SHAPE_NAMES[:shapes])


def paint_colour_shape(
    canvas: Canvas, kind: str, angle: float = 0.0, *, similarity: float = 0.0, theme: ThemeName = "light"
) -> None:
    """Paint a tile of `tile_kinds` onto a square canvas that shows an empty cell; nothing if `kind` is `EMPTY`.

    `angle`, in degrees, rotates the shape but not the tile; `similarity` is the fraction of `MIDDLE` in its colour.
    """
    if kind == EMPTY:
        return
    colour, shape = kind.split()
    side = canvas.width
    canvas.rectangle(0, 0, side, side, THEMES[theme].tile, radius=side * 0.09)
    draw_shape(canvas, shape, side / 2, side / 2, side * 0.36, blend(COLOURS[colour], MIDDLE, similarity), angle)
