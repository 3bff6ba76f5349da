"""Drawing of tiles with coloured shapes."""

from __future__ import annotations

from vlmgym.sandbox.games.tiles.names import EMPTY
from vlmgym.sandbox.rendering.canvas import Canvas
from vlmgym.sandbox.rendering.palette import COLOURS, MIDDLE, THEMES, ThemeName, blend
from vlmgym.sandbox.rendering.shapes import draw_shape


def paint_colour_shape(
    canvas: Canvas, kind: str, angle: float = 0.0, *, similarity: float = 0.0, theme: ThemeName = "light"
) -> None:
    """Paint a tile onto a square canvas that shows an empty cell.

    Args:
        canvas: The cell; unchanged for `EMPTY`.
        kind: Colour and shape, see `tile_kinds`, or `EMPTY`.
        angle: Rotation of the shape, not the tile, in degrees counter-clockwise.
        similarity: Share of `MIDDLE` blended into the shape's colour, 0 to 1.
        theme: Theme of the board.
    """
    if kind == EMPTY:
        return
    colour, shape = kind.split()
    side = canvas.width
    canvas.rectangle(0, 0, side, side, THEMES[theme].tile, radius=side * 0.09)
    draw_shape(canvas, shape, side / 2, side / 2, side * 0.36, blend(COLOURS[colour], MIDDLE, similarity), angle)
