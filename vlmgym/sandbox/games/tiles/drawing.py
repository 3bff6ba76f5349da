"""Images of tiles that are told apart by a colour and a shape."""

from __future__ import annotations

from vlmgym.sandbox.games.tiles.names import EMPTY
from vlmgym.sandbox.rendering.canvas import Canvas
from vlmgym.sandbox.rendering.palette import COLOURS, MIDDLE, THEMES, ThemeName, blend
from vlmgym.sandbox.rendering.shapes import draw_shape


def paint_colour_shape(
    canvas: Canvas, kind: str, angle: float = 0.0, *, similarity: float = 0.0, theme: ThemeName = "light"
) -> None:
    """Paint a tile over the empty cell that a square canvas holds.

    Args:
        canvas: The cell; it stays as it is for `EMPTY`.
        kind: A name of `games.tiles.names.kinds`, or `EMPTY`.
        angle: The shape, not the tile, is turned by so many degrees counter-clockwise.
        similarity: Share of `MIDDLE` in the shape's colour, 0 to 1.
        theme: Decides the colour of the tile's face.
    """
    if kind == EMPTY:
        return
    colour, shape = kind.split()
    side = canvas.width
    canvas.rectangle(0, 0, side, side, THEMES[theme].tile, radius=side * 0.09)
    draw_shape(canvas, shape, side / 2, side / 2, side * 0.36, blend(COLOURS[colour], MIDDLE, similarity), angle)
