"""Drawing of Sokoban cells."""

from __future__ import annotations

from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.palette import blend
from vlmgym.sandbox.drawing.shapes import turned
from vlmgym.sandbox.games.figures import BLACK, Tint, paint_player, paint_wall

BOX: Colour = (190, 120, 52)
STORED: Colour = (44, 148, 72)
RING: Colour = (206, 44, 44)


def paint_sokoban_cell(canvas: Canvas, words: str, angle: float, tint: Tint) -> None:
    """Paint a cell given by words such as `box on target`; `angle` does not rotate walls."""
    side = canvas.width
    middle = side / 2
    if words == "wall":
        paint_wall(canvas, tint)
        return
    if words == "player on target":
        canvas.circle(middle, middle, side * 0.48, tint(RING))
        canvas.circle(middle, middle, side * 0.41, tint((250, 246, 238)))
    elif words.endswith("target"):
        canvas.circle(middle, middle, side * 0.3, tint(RING))
        canvas.circle(middle, middle, side * 0.2, tint((250, 246, 238)))
        canvas.circle(middle, middle, side * 0.1, tint(RING))
    if words.startswith("box"):
        _box(canvas, tint(STORED if words.endswith("target") else BOX), angle)
    elif words.startswith("player"):
        paint_player(canvas, tint, angle)


def _box(canvas: Canvas, colour: Colour, angle: float) -> None:
    middle, dark = canvas.width / 2, blend(colour, BLACK, 0.35)
    half = canvas.width * 0.4

    def block(left: float, top: float, right: float, bottom: float, fill: Colour) -> None:
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        canvas.polygon(turned(corners, middle, middle, half, angle), fill)

    block(-1, -1, 1, 1, dark)
    block(-0.82, -0.82, 0.82, 0.82, colour)
    for left in (-0.82, 0.82):
        wide = -0.2 if left > 0 else 0.2
        plank = [(left, -0.62), (left, -0.82), (left + wide, -0.82), (-left, 0.62), (-left, 0.82), (-left - wide, 0.82)]
        canvas.polygon(turned(plank, middle, middle, half, angle), dark)
