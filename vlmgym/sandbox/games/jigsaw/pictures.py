"""Pictures to cut into patches: circles over a gradient."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.palette import COLOURS, MIDDLE, blend

SHADES = tuple(COLOURS.values())
WHITE: Colour = (255, 255, 255)
CIRCLES = (9, 14)
"""Minimum and maximum number of circles in a picture."""
PICTURES = 10_000
"""Number of different pictures."""


class Picture(NamedTuple):
    """A picture.

    Attributes:
        corners: Colours of the corners, row by row.
        circles: x, y and radius of each circle, relative to the picture's side, and its colour.
    """

    corners: tuple[Colour, ...]
    circles: tuple[tuple[float, float, float, Colour], ...]


@lru_cache(maxsize=256)
def make_picture(number: int) -> Picture:
    """Make a picture from its number; the gradient between four colours shows where each patch belongs."""
    rng = np.random.default_rng(number)
    corners = tuple(SHADES[i] for i in rng.permutation(len(SHADES))[:4])
    circles = []
    for _ in range(int(rng.integers(CIRCLES[0], CIRCLES[1] + 1))):
        x, y, radius = rng.uniform((0, 0, 0.05), (1, 1, 0.2)).tolist()
        circles.append((x, y, radius, SHADES[int(rng.integers(len(SHADES)))]))
    return Picture(corners, tuple(circles))


def draw_patch(number: int, place: tuple[int, int], patches: int, side: int, similarity: float) -> NDArray[np.uint8]:
    """Draw the patch at `place` (row, column) of a picture cut into `patches` x `patches`: uint8 (side, side, 3)."""
    corners, circles = make_picture(number)
    whole, left, top = patches * side, place[1] * side, place[0] * side
    canvas = Canvas(side, side, MIDDLE, left=left, top=top)
    canvas.image(
        _gradient([_tint(c, similarity) for c in corners], whole, left, top, side), left + side / 2, top + side / 2
    )
    for x, y, radius, shade in circles:
        colour = _tint(shade, similarity)
        canvas.circle(x * whole, y * whole, radius * whole, colour)
        canvas.circle(x * whole, y * whole, radius * whole * 0.6, blend(colour, WHITE, 0.45))
    return canvas.pixels()


def _gradient(corners: list[Colour], whole: int, left: int, top: int, side: int) -> NDArray[np.uint8]:
    """Interpolate between four colours, with integers so that pixels are identical on all machines."""
    end, at = whole - 1, np.arange(side, dtype=np.int32)
    across, down = (at + left)[None, :, None], (at + top)[:, None, None]
    one, two, three, four = np.array(corners, np.int32)
    mixed = (end - down) * ((end - across) * one + across * two) + down * ((end - across) * three + across * four)
    pixels: NDArray[np.uint8] = ((mixed + end * end // 2) // (end * end)).astype(np.uint8)
    return pixels


def _tint(colour: Colour, similarity: float) -> Colour:
    return blend(colour, MIDDLE, similarity)
