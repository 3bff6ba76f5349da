"""Drawing of figures: flat figures at any angle, solid figures in an isometric view."""

from __future__ import annotations

import math

from vlmgym.sandbox.drawing.canvas import Canvas, Colour, Point
from vlmgym.sandbox.drawing.palette import COLOURS, blend
from vlmgym.sandbox.games.rotation.figures import Figure

BLACK: Colour = (30, 32, 40)
WHITE: Colour = (255, 255, 255)
BLUE = COLOURS["blue"]
SHADES = (blend(BLUE, WHITE, 0.62), blend(BLUE, WHITE, 0.25), blend(BLUE, BLACK, 0.3))
"""Colours of the top, left and right faces of a cube; flat figures use the second."""

Face = tuple[Colour, list[Point]]


def faces(figure: Figure, angle: int, solid: bool) -> list[Face]:
    """Return the faces of a figure from back to front, centred on the origin, in units of a cube's edge.

    `angle` is the rotation of a flat figure in degrees counter-clockwise; it has no effect on solid figures.
    """
    drawn = _solid_faces(figure) if solid else [_square(x, y, angle) for x, y, _ in figure]
    points = [point for _, face in drawn for point in face]
    middle_x = (min(x for x, _ in points) + max(x for x, _ in points)) / 2
    middle_y = (min(y for _, y in points) + max(y for _, y in points)) / 2
    return [(colour, [(x - middle_x, y - middle_y) for x, y in face]) for colour, face in drawn]


def extent(drawn: list[Face]) -> float:
    """Return the width or the height of a whole figure, whichever is larger, given its centred faces."""
    return max(2 * max(abs(x), abs(y)) for _, face in drawn for x, y in face)


def paint(canvas: Canvas, drawn: list[Face], x: float, y: float, edge: float) -> None:
    """Draw the faces of a figure around a centre; `x`, `y` and `edge` are in pixels."""
    for colour, face in drawn:
        points = [(x + edge * px, y + edge * py) for px, py in face]
        canvas.polygon(points, colour)
        for start, end in zip(points, [*points[1:], points[0]]):
            canvas.line(start, end, max(1.0, edge / 16), BLACK)


def _square(x: int, y: int, angle: int) -> Face:
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    corners = ((x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1))
    return SHADES[1], [(px * cos + py * sin, py * cos - px * sin) for px, py in corners]


def _solid_faces(figure: Figure) -> list[Face]:
    drawn: list[Face] = []
    for x, y, z in sorted(figure, key=sum):
        corners = {
            (dx, dy, dz): ((x + dx - y - dy) * math.sqrt(3) / 2, (x + dx + y + dy) / 2 - z - dz)
            for dx in (0, 1)
            for dy in (0, 1)
            for dz in (0, 1)
        }
        top = [corners[key] for key in ((0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1))]
        left = [corners[key] for key in ((0, 1, 0), (1, 1, 0), (1, 1, 1), (0, 1, 1))]
        right = [corners[key] for key in ((1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1))]
        neighbours = ((x, y, z + 1), (x, y + 1, z), (x + 1, y, z))
        each = zip(neighbours, SHADES, (top, left, right))
        drawn += [(shade, face) for cube, shade, face in each if cube not in figure]
    return drawn
