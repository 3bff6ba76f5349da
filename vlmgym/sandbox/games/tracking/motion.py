"""Paths of balls that can be followed from frame to frame. Lengths are in thousandths of the image's side."""

from __future__ import annotations

import math

import numpy as np

from vlmgym.errors import GenerationError

Point = tuple[int, int]
"""x and y of a ball's centre."""
Frame = tuple[Point, ...]

RADIUS = 50
BORDER = 90
"""Minimum distance of a ball's centre from the edges."""
APART = 150
"""Minimum distance between two centres."""
FROM_LINE = 30
"""Minimum distance of a centre from the vertical line in the middle, so that the ball's side is clear."""
CLEARER = 1.5
"""Minimum ratio of two distances from a ball's new position: to any other ball's previous position, and to its own."""
SLOWEST = 0.7
"""Minimum speed relative to the maximum.

Because CLEARER x SLOWEST > 1, the ball nearest to any previous position is always the ball that was there.
"""
TRIES, RESTARTS = 200, 2000


def make_paths(rng: np.random.Generator, balls: int, frames: int, speed: int) -> tuple[Frame, ...]:
    """Place balls at random and move them, each by at most `speed` per frame; return the frames."""
    for _ in range(RESTARTS):
        path: list[Frame] = []
        while len(path) < frames:
            placed = _place(rng, balls, path[-1] if path else None, speed)
            if placed is None:
                break
            path.append(placed)
        if len(path) == frames:
            return tuple(path)
    raise GenerationError(f"tracking: no paths of {balls} balls over {frames} frames were found")


def can_follow(before: Frame, after: Frame, factor: float = 1.0) -> bool:
    """True if each ball is at least `factor` times closer to its own previous position than to any other ball's."""
    return all(
        factor * math.dist(after[i], before[i]) <= math.dist(after[i], before[j])
        for i in range(len(after))
        for j in range(len(before))
        if i != j
    )


def fits(frame: Frame) -> bool:
    """True if the balls are inside the image, apart from each other, and clear of the line."""
    return all(_free(point, frame[:i]) for i, point in enumerate(frame))


def _free(point: Point, others: Frame) -> bool:
    inside = all(BORDER <= v <= 1000 - BORDER for v in point)
    return inside and abs(point[0] - 500) >= FROM_LINE and all(math.dist(point, other) >= APART for other in others)


def _place(rng: np.random.Generator, balls: int, before: Frame | None, speed: int) -> Frame | None:
    placed: Frame = ()
    for ball in range(balls):
        for _ in range(TRIES):
            if before is None:
                point = int(rng.integers(BORDER, 1001 - BORDER)), int(rng.integers(BORDER, 1001 - BORDER))
            else:
                angle, length = rng.uniform(0, math.tau), rng.uniform(SLOWEST * speed, speed)
                x, y = before[ball]
                point = round(x + length * math.cos(angle)), round(y + length * math.sin(angle))
                nearest = min(math.dist(point, other) for i, other in enumerate(before) if i != ball)
                if CLEARER * math.dist(point, before[ball]) > nearest:
                    continue
            if _free(point, placed):
                placed = (*placed, point)
                break
        else:
            return None
    return placed
