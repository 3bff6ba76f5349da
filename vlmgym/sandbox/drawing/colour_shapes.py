"""Tiles told apart by a colour and a shape: their names, such as `red circle`, and their pictures."""

from __future__ import annotations

from functools import lru_cache

from vlmgym.errors import UsageError
from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.drawing.palette import COLOURS, MIDDLE, THEMES, ThemeName, blend
from vlmgym.sandbox.drawing.shapes import SHAPES, draw_shape

EMPTY = "empty"
"""What a cell without a tile is called."""

MOST_COLOURS = len(COLOURS)
MOST_SHAPES = len(SHAPES)


@lru_cache(maxsize=MOST_COLOURS * MOST_SHAPES)
def kinds(colours: int, shapes: int) -> tuple[str, ...]:
    """Names of all tiles of the first so many colours and shapes: `red circle`, `red square`, ...

    Raises:
        UsageError: There are not that many colours or shapes.
    """
    if not 1 <= colours <= MOST_COLOURS:
        raise UsageError(f"there are 1 to {MOST_COLOURS} colours, not {colours}")
    if not 1 <= shapes <= MOST_SHAPES:
        raise UsageError(f"there are 1 to {MOST_SHAPES} shapes, not {shapes}")
    return tuple(f"{colour} {shape}" for colour in list(COLOURS)[:colours] for shape in SHAPES[:shapes])


def paint_colour_shape(
    canvas: Canvas, kind: str, angle: float = 0.0, *, similarity: float = 0.0, theme: ThemeName = "light"
) -> None:
    """Paint a tile over the empty cell that a square canvas holds.

    Args:
        canvas: The cell; it stays as it is for `EMPTY`.
        kind: A name of `kinds`, or `EMPTY`.
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
