"""Tiles with coloured shapes, such as `red circle`, and walls and the player, all shared by several games."""

from __future__ import annotations

from collections.abc import Callable

from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.palette import BLACK, COLOURS, MIDDLE, THEMES, WHITE, ThemeName, blend
from vlmgym.sandbox.drawing.shapes import draw_shape, turned

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


# Figures --------------------------------------------------------------------------------------------------------------
#
# Figures shared by several games: walls and the player.

WALL: Colour = (92, 98, 114)
PLAYER: Colour = (28, 100, 220)

Tint = Callable[[Colour], Colour]
"""Function that mixes a colour with grey; see `BoardGame.tint`."""


def paint_wall(canvas: Canvas, tint: Tint) -> None:
    """Paint a block of wall with a lighter upper left edge."""
    side = canvas.width
    colour = tint(WALL)
    canvas.rectangle(0, 0, side, side, blend(colour, BLACK, 0.25))
    canvas.rectangle(0, 0, side * 0.94, side * 0.94, blend(colour, WHITE, 0.2))
    canvas.rectangle(side * 0.06, side * 0.06, side * 0.88, side * 0.88, colour)


def paint_player(canvas: Canvas, tint: Tint, angle: float) -> None:
    """Paint the player, a round face, rotated by `angle` degrees counter-clockwise."""
    side = canvas.width
    middle = side / 2
    colour = tint(PLAYER)
    canvas.circle(middle, middle, side * 0.36, blend(colour, BLACK, 0.35))
    canvas.circle(middle, middle, side * 0.31, colour)
    for x in (-0.4, 0.4):
        (eye,) = turned([(x, -0.25)], middle, middle, side * 0.31, angle)
        canvas.circle(*eye, side * 0.075, tint(WHITE))
    smile = [(-0.5, 0.3), (-0.25, 0.52), (0.25, 0.52), (0.5, 0.3), (0.25, 0.38), (-0.25, 0.38)]
    canvas.polygon(turned(smile, middle, middle, side * 0.31, angle), tint(WHITE))
