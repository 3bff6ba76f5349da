"""Draw named, filled shapes, the tiles, walls and players made of them, and cubes; widen outlines of shapes.

A widened outline is a polygon and is therefore anti-aliased like all shapes; OpenCV could only widen the mask of a
drawn shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import BLACK, COLOURS, MIDDLE, THEMES, WHITE, Canvas, Colour, Point, ThemeName, blend

Outline = list[Point]


def _regular(corners: int) -> Outline:
    return [_polar(1.0, 90 + 360 * i / corners) for i in range(corners)]


def _polar(radius: float, degrees: float) -> Point:
    return radius * math.cos(math.radians(degrees)), -radius * math.sin(math.radians(degrees))


def point_around(x: float, y: float, turn: float, distance: float) -> Point:
    """Return the point at a distance from a centre, in a direction as a fraction of a turn clockwise from the top."""
    return x + distance * math.sin(math.tau * turn), y - distance * math.cos(math.tau * turn)


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
"""Functions that return the outlines of shapes, within a circle of about radius 1, keyed by `SHAPE_NAMES`."""


def draw_shape(canvas: Canvas, shape: str, x: float, y: float, radius: float, colour: Colour, angle: float = 0) -> None:
    """Draw a shape of `OUTLINES` centred at (x, y), rotated by `angle` degrees counter-clockwise."""
    canvas.polygon(turned(unit_outline(shape), x, y, radius, angle), colour)


@cache
def unit_outline(shape: str) -> Outline:
    """Return the corners of a shape around (0, 0) with a radius of about 1. The list is cached, so do not modify it."""
    return OUTLINES[shape]()


def turned(outline: Outline, x: float, y: float, radius: float, angle: float) -> Outline:
    """Scale an outline by `radius`, rotate it by `angle` degrees counter-clockwise and move it to (x, y)."""
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return [(x + radius * (px * cos + py * sin), y + radius * (py * cos - px * sin)) for px, py in outline]


STEP = math.radians(12)
"""Maximum angle in radians between successive points of a rounded corner; corners that turn by less stay sharp."""
TOLERANCE = 0.02
"""Relative error allowed in the distance of a widened outline's points from the shape."""


def widen(outline: Outline, distance: float) -> Outline:
    """Return the outline of all points within `distance` of a shape; convex corners are rounded.

    Every edge is moved outwards and joined to its neighbours. Points that end up too close to another edge, as in a
    notch narrower than twice the distance, are replaced with the intersection of the edges on either side. The distance
    must be small enough that the widened shape has no hole.
    """
    corners = outline if _area(outline) > 0 else outline[::-1]
    moved = [
        point
        for before, corner, after in zip([corners[-1], *corners], corners, [*corners[1:], corners[0]])
        for point in _joint(before, corner, after, distance)
    ]
    right = np.abs(_distances(moved, corners) / distance - 1) <= TOLERANCE
    kept = np.flatnonzero(right).tolist()
    widened = []
    for first, second in pairwise([*kept, kept[0] + len(moved)]):
        widened.append(moved[first])
        if second > first + 1:
            edges = (moved[i % len(moved)] for i in (first, first + 1, second - 1, second))
            widened.append(_intersection(*edges))
    return widened


def _joint(before: Point, corner: Point, after: Point, distance: float) -> Outline:
    """Return the points that join the two moved edges at a corner."""
    start, end = (math.atan2(p[0] - q[0], q[1] - p[1]) for p, q in ((before, corner), (corner, after)))
    turn = math.remainder(end - start, math.tau)
    if turn > STEP:
        steps = math.ceil(turn / STEP)
        return [_beside(corner, start + turn * i / steps, distance) for i in range(steps + 1)]
    return [_beside(corner, start + turn / 2, distance / max(math.cos(turn / 2), TOLERANCE))]


def _beside(point: Point, angle: float, distance: float) -> Point:
    return point[0] + distance * math.cos(angle), point[1] + distance * math.sin(angle)


def _intersection(a: Point, b: Point, c: Point, d: Point) -> Point:
    """Return the intersection of the lines ab and cd."""
    (ux, uy), (vx, vy) = (b[0] - a[0], b[1] - a[1]), (d[0] - c[0], d[1] - c[1])
    along = ((c[0] - a[0]) * vy - (c[1] - a[1]) * vx) / (ux * vy - uy * vx)
    return a[0] + along * ux, a[1] + along * uy


def _distances(points: Outline, corners: Outline) -> NDArray[np.float64]:
    """Return the distance of each point from the nearest edge, shape (points,)."""
    start = np.array(corners)
    edge = np.roll(start, -1, axis=0) - start
    offset = np.array(points)[:, None] - start
    along = np.clip((offset * edge).sum(-1) / (edge**2).sum(-1), 0, 1)
    nearest: NDArray[np.float64] = np.sqrt(((offset - along[..., None] * edge) ** 2).sum(-1)).min(1)
    return nearest


def _area(outline: Outline) -> float:
    """Return twice the signed area of an outline."""
    return sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairwise([*outline, outline[0]]))


# Tiles ----------------------------------------------------------------------------------------------------------------

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


PLATE: Colour = (252, 250, 244)
PLATE_INK: Colour = (38, 40, 46)


def whole_pixel(x: float, y: float, unit: float) -> tuple[int, int]:
    """Return the pixel nearest to a point in units of `unit` pixels."""
    return round(x * unit), round(y * unit)


def paint_plate(
    canvas: Canvas, text: str, x: float, y: float, width: float, height: float, capitals: float, radius: float
) -> None:
    """Draw a plate centred at the whole pixel nearest to (x, y), with text of cap height `capitals`.

    Equal plates look exactly the same, wherever they are.
    """
    x, y = whole_pixel(x, y, canvas.unit)
    width, height, capitals, radius = (v * canvas.unit for v in (width, height, capitals, radius))
    pixels = canvas.in_pixels()
    pixels.rectangle(x - width / 2, y - height / 2, width, height, PLATE, radius)
    pixels.text(text, x, y, capitals, PLATE_INK)


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


# Cubes ----------------------------------------------------------------------------------------------------------------
#
# Cubes in an isometric view: x to the lower right, y to the lower left and z upwards.

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
