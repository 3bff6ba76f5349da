"""Named filled shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from vlmgym.sandbox.rendering.canvas import Canvas, Colour, Point

Outline = list[Point]


def _regular(corners: int) -> Outline:
    return [_polar(1.0, 90 + 360 * i / corners) for i in range(corners)]


def _polar(radius: float, degrees: float) -> Point:
    return radius * math.cos(math.radians(degrees)), -radius * math.sin(math.radians(degrees))


def _star() -> Outline:
    return [_polar(1.08 if i % 2 == 0 else 0.46, 90 + 36 * i) for i in range(10)]


def _heart() -> Outline:
    # The usual heart curve, x = 16 sin^3 t, scaled to the unit circle.
    points = []
    for i in range(72):
        t = 2 * math.pi * i / 72
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((math.sin(t) ** 3, -(y + 2.5) / 16.5))
    return points


def _moon() -> Outline:
    # A disc minus another one shifted to the right; their rims meet at `tip` degrees.
    shift, tip, steps = 0.46, 50.0, 48
    x, y = _polar(1.0, tip)
    radius, inner_tip = math.hypot(x - shift, y), math.degrees(math.atan2(-y, x - shift))
    rim = [_polar(1.0, tip + (360 - 2 * tip) * i / steps) for i in range(steps + 1)]
    hollow = [_polar(radius, 360 - inner_tip - (360 - 2 * inner_tip) * i / steps) for i in range(1, steps)]
    return [(x + 0.16, y) for x, y in rim + [(x + shift, y) for x, y in hollow]]


def _cross() -> Outline:
    a, b = 0.34, 0.98
    return [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a), (a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)]


OUTLINES: dict[str, Callable[[], Outline]] = {
    "circle": lambda: _regular(72),
    "square": lambda: [(-0.84, -0.84), (0.84, -0.84), (0.84, 0.84), (-0.84, 0.84)],
    "triangle": lambda: [(x, y + 0.16) for x, y in _regular(3)],
    "star": _star,
    "diamond": lambda: [(0, -1.1), (0.62, 0), (0, 1.1), (-0.62, 0)],
    "heart": _heart,
    "moon": _moon,
    "cross": _cross,
}
"""Outlines by the names in `games.tiles`, in a circle of about radius 1."""


def draw_shape(canvas: Canvas, shape: str, x: float, y: float, radius: float, colour: Colour, angle: float = 0) -> None:
    """Draw a shape of `OUTLINES` centred at (x, y), rotated by `angle` degrees counter-clockwise."""
    canvas.polygon(shape_points(shape, x, y, radius, angle), colour)


def shape_points(shape: str, x: float, y: float, radius: float, angle: float = 0) -> Outline:
    """Corners of a shape as drawn by `draw_shape`."""
    return turned(unit_outline(shape), x, y, radius, angle)


@cache
def unit_outline(shape: str) -> Outline:
    """Corners of a shape around (0, 0) with a radius of about 1; cached, so do not modify."""
    return OUTLINES[shape]()


def turned(outline: Outline, x: float, y: float, radius: float, angle: float) -> Outline:
    """Scale an outline by `radius`, rotate it by `angle` degrees counter-clockwise and move it to (x, y)."""
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return [(x + radius * (px * cos + py * sin), y + radius * (py * cos - px * sin)) for px, py in outline]
