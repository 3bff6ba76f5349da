"""Figures shared by several games: walls and the player."""

from __future__ import annotations

from collections.abc import Callable

from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.palette import blend
from vlmgym.sandbox.drawing.shapes import turned

WALL: Colour = (92, 98, 114)
PLAYER: Colour = (28, 100, 220)
WHITE: Colour = (255, 255, 255)
BLACK: Colour = (0, 0, 0)

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
