"""Tiles with coloured shapes, such as `red circle`, shared by Shisen-Sho, Swap and scenes."""

from __future__ import annotations

from vlmgym.sandbox.rendering.canvas import Canvas
from vlmgym.sandbox.rendering.palette import COLOURS, MIDDLE, THEMES, ThemeName, blend
from vlmgym.sandbox.rendering.shapes import draw_shape

EMPTY = "empty"
"""Name of a cell without a tile."""

COLOUR_NAMES = ("red", "blue", "green", "yellow", "purple", "cyan", "orange", "pink")
SHAPE_NAMES = ("circle", "square", "triangle", "star", "diamond", "heart", "moon", "cross")
"""Games that need n colours or shapes use the first n. `sandbox/rendering` draws them."""

MAX_COLOURS = len(COLOUR_NAMES)
MAX_SHAPES = len(SHAPE_NAMES)


def tile_kinds(colours: int, shapes: int) -> tuple[str, ...]:
    """Return the names of all tiles with the first colours and shapes: `red circle`, `red square`, ..."""
    return tuple(f"{colour} {shape}" for colour in COLOUR_NAMES[:colours] for shape in SHAPE_NAMES[:shapes])


def paint_colour_shape(
    canvas: Canvas, kind: str, angle: float = 0.0, *, similarity: float = 0.0, theme: ThemeName = "light"
) -> None:
    """Paint a tile of `tile_kinds` onto a square canvas that shows an empty cell, which it leaves if `EMPTY`.

    `angle` rotates the shape, not the tile; `similarity` is the fraction of `MIDDLE` in the shape's colour.
    """
    if kind == EMPTY:
        return
    colour, shape = kind.split()
    side = canvas.width
    canvas.rectangle(0, 0, side, side, THEMES[theme].tile, radius=side * 0.09)
    draw_shape(canvas, shape, side / 2, side / 2, side * 0.36, blend(COLOURS[colour], MIDDLE, similarity), angle)
