"""Draw cubes in an isometric view: x to the lower right, y to the lower left and z upwards."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vlmgym.sandbox.drawing.canvas import Canvas, Colour, Point

Face = tuple[Colour, list[Point]]
"""Colour and corners of a face."""


def project(x: float, y: float, z: float) -> Point:
    """Project a point in space; lengths are in edges of a cube."""
    return (x - y) * math.sqrt(3) / 2, (x + y) / 2 - z


def cube_faces(x: float, y: float, z: float) -> tuple[list[Point], list[Point], list[Point]]:
    """Return the corners of the upper, left and right face of the unit cube whose lower back corner is given."""
    corners = {(dx, dy, dz): project(x + dx, y + dy, z + dz) for dx in (0, 1) for dy in (0, 1) for dz in (0, 1)}
    top = [corners[key] for key in ((0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1))]
    left = [corners[key] for key in ((0, 1, 0), (1, 1, 0), (1, 1, 1), (0, 1, 1))]
    right = [corners[key] for key in ((1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1))]
    return top, left, right


def paint_faces(canvas: Canvas, faces: Sequence[Face], x: float, y: float, edge: float, outline: Colour) -> None:
    """Draw faces with outlines; the origin is at (x, y), and `edge` is the edge of a cube, in pixels."""
    for colour, face in faces:
        points = [(x + edge * px, y + edge * py) for px, py in face]
        canvas.polygon(points, colour)
        for start, end in zip(points, [*points[1:], points[0]]):
            canvas.line(start, end, max(1.0, edge / 16), outline)
