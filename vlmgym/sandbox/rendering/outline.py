"""Offset outlines outwards by a distance.

The result is a polygon, anti-aliased like all shapes; OpenCV could only widen the mask of a drawn shape.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.rendering.canvas import Point
from vlmgym.sandbox.rendering.shapes import Outline

STEP = math.radians(12)
"""Maximum angle per step of a rounded corner; corners that turn by less are not rounded."""
TOLERANCE = 0.02
"""Relative error allowed in the distance of a point of a widened outline."""


def widen(outline: Outline, distance: float) -> Outline:
    """Outline of all points within a distance of a shape; convex corners are rounded.

    Every edge is moved outwards and joined to its neighbours. Points that end up too close to another edge, as in a
    notch narrower than twice the distance, are replaced by the intersection of the edges that remain. The distance
    must be too small to close a ring.
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
    for one, other in pairwise([*kept, kept[0] + len(moved)]):
        widened.append(moved[one])
        if other > one + 1:
            edges = (moved[i % len(moved)] for i in (one, one + 1, other - 1, other))
            widened.append(_meeting(*edges))
    return widened


def _joint(before: Point, corner: Point, after: Point, distance: float) -> Outline:
    """Points that replace a corner between its two moved edges."""
    start, end = (math.atan2(p[0] - q[0], q[1] - p[1]) for p, q in ((before, corner), (corner, after)))
    turn = math.remainder(end - start, math.tau)
    if turn > STEP:
        steps = math.ceil(turn / STEP)
        return [_beside(corner, start + turn * i / steps, distance) for i in range(steps + 1)]
    return [_beside(corner, start + turn / 2, distance / max(math.cos(turn / 2), TOLERANCE))]


def _beside(point: Point, angle: float, distance: float) -> Point:
    return point[0] + distance * math.cos(angle), point[1] + distance * math.sin(angle)


def _meeting(a: Point, b: Point, c: Point, d: Point) -> Point:
    """Intersection of the lines ab and cd."""
    (ux, uy), (vx, vy) = (b[0] - a[0], b[1] - a[1]), (d[0] - c[0], d[1] - c[1])
    along = ((c[0] - a[0]) * vy - (c[1] - a[1]) * vx) / (ux * vy - uy * vx)
    return a[0] + along * ux, a[1] + along * uy


def _distances(points: Outline, corners: Outline) -> NDArray[np.float64]:
    """Distance of each point from the nearest edge."""
    start = np.array(corners)
    edge = np.roll(start, -1, axis=0) - start
    offset = np.array(points)[:, None] - start
    along = np.clip((offset * edge).sum(-1) / (edge**2).sum(-1), 0, 1)
    nearest: NDArray[np.float64] = np.sqrt(((offset - along[..., None] * edge) ** 2).sum(-1)).min(1)
    return nearest


def _area(outline: Outline) -> float:
    """Twice the signed area."""
    return sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairwise([*outline, outline[0]]))
