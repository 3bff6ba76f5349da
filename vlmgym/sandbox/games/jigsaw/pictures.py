"""Pictures to cut into patches: circles over a gradient."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.rendering.canvas import Canvas, Colour
from vlmgym.sandbox.rendering.palette import COLOURS, MIDDLE, blend

SHADES = tuple(COLOURS.values())
CIRCLES = (9, 14)
"""Minimum and maximum number of circles."""
PICTURES = 10_000
"""Number of pictures."""


@lru_cache(maxsize=64)
def draw_picture(number: int, side: int, similarity: float) -> NDArray[np.uint8]:
    """Draw a picture; the gradient between four colours gives each patch its place."""
    rng = np.random.default_rng(number)
    corners = [_tint(SHADES[i], similarity) for i in rng.permutation(len(SHADES))[:4]]
    canvas = Canvas(side, side, MIDDLE)
    bands = 48
    for row in range(bands):
        for column in range(bands):
            across, down = column / (bands - 1), row / (bands - 1)
            colour = blend(blend(corners[0], corners[1], across), blend(corners[2], corners[3], across), down)
            x, y, width = side * column / bands, side * row / bands, side / bands
            canvas.rectangle(x, y, width, width, colour)
    for _ in range(int(rng.integers(CIRCLES[0], CIRCLES[1] + 1))):
        x, y, radius = (float(v) for v in rng.uniform((0, 0, 0.05), (1, 1, 0.2)) * side)
        colour = _tint(SHADES[int(rng.integers(len(SHADES)))], similarity)
        canvas.circle(x, y, radius, colour)
        canvas.circle(x, y, radius * 0.6, blend(colour, (255, 255, 255), 0.45))
    return canvas.pixels()


def _tint(colour: Colour, similarity: float) -> Colour:
    return blend(colour, MIDDLE, similarity)
