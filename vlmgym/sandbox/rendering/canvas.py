"""A small anti-aliased drawing surface whose pixels are the same on every machine.

Shapes and glyphs are drawn by pygame without anti-aliasing at four times the size and averaged by Pillow with integers,
because pygame's own smooth scaling differs between processors. The font is the one inside the pygame package.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pygame
from numpy.typing import NDArray
from PIL import Image

SUPERSAMPLE = 4

Colour = tuple[int, int, int]
Point = tuple[float, float]


class Canvas:
    """An RGB surface of width x height pixels; all coordinates are in pixels, x to the right and y down.

    It may be a window on a larger image: (`left`, `top`) is then its upper left pixel, and coordinates are those of
    the image, whose pixels in the window are drawn as if all of it was.
    """

    def __init__(self, width: int, height: int, background: Colour, *, left: int = 0, top: int = 0) -> None:
        self.width, self.height = width, height
        self._left, self._top = left * SUPERSAMPLE, top * SUPERSAMPLE
        self._surface = pygame.Surface((width * SUPERSAMPLE, height * SUPERSAMPLE), depth=32, masks=_RGBX_BYTES)
        self._surface.fill(background)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour, radius: float = 0) -> None:
        """A filled rectangle with rounded corners."""
        left, top, right, bottom = (round(v * SUPERSAMPLE) for v in (x, y, x + width, y + height))
        area = pygame.Rect(left - self._left, top - self._top, right - left, bottom - top)
        pygame.draw.rect(self._surface, colour, area, border_radius=round(radius * SUPERSAMPLE))

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        """A filled polygon."""
        pygame.draw.polygon(self._surface, colour, [self._sample(x, y) for x, y in points])

    def circle(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """A filled circle."""
        pygame.draw.circle(self._surface, colour, self._sample(x, y), round(radius * SUPERSAMPLE))

    def line(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """A straight line of a width, with square ends."""
        length = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
        dx, dy = (end[1] - start[1]) / length * width / 2, (start[0] - end[0]) / length * width / 2
        self.polygon(
            [
                (start[0] + dx, start[1] + dy),
                (end[0] + dx, end[1] + dy),
                (end[0] - dx, end[1] - dy),
                (start[0] - dx, start[1] - dy),
            ],
            colour,
        )

    def text(
        self,
        text: str,
        x: float,
        y: float,
        height: float,
        colour: Colour,
        *,
        max_width: float = math.inf,
        angle: float = 0.0,
        align: str = "centre",
    ) -> None:
        """One line of text.

        Args:
            text: The line.
            x: Horizontal position of its centre, or of its left or right edge as `align` says.
            y: Vertical centre of its capitals.
            height: Height of the capitals.
            colour: Colour.
            max_width: Make the text smaller until it is no wider.
            angle: Degrees counter-clockwise.
            align: `centre`, `left` or `right`.
        """
        size = _font_size(height)
        if (width := _font(size).size(text)[0]) > max_width * SUPERSAMPLE:
            size = max(1, int(size * max_width * SUPERSAMPLE / width))
        glyphs = _font(size).render(text, False, colour)
        width = glyphs.get_width()
        shift = {"centre": 0.0, "left": width / 2, "right": -width / 2}[align]
        below = size * BELOW_CAPITALS
        turn = math.radians(angle)
        centre_x = x * SUPERSAMPLE + shift * math.cos(turn) + below * math.sin(turn)
        centre_y = y * SUPERSAMPLE - shift * math.sin(turn) + below * math.cos(turn)
        if angle:
            glyphs = pygame.transform.rotate(glyphs, angle)
        w, h = glyphs.get_size()
        self._surface.blit(glyphs, (round(centre_x - w / 2) - self._left, round(centre_y - h / 2) - self._top))

    def image(self, pixels: NDArray[np.uint8], x: float, y: float, angle: float = 0.0) -> None:
        """An image, one of its pixels to each pixel.

        Args:
            pixels: uint8 RGB of shape (height, width, 3).
            x: Horizontal position of its centre.
            y: Vertical position of its centre.
            angle: Degrees counter-clockwise; its corners are cut off where they leave the canvas.
        """
        height, width, _ = pixels.shape
        if angle:  # what a turn adds at the corners is transparent, which takes several times longer to draw
            pixels = np.dstack([pixels, np.full((height, width), 255, np.uint8)])
        surface = pygame.image.frombuffer(pixels.tobytes(), (width, height), "RGBA" if angle else "RGB")
        surface = pygame.transform.scale(surface, (width * SUPERSAMPLE, height * SUPERSAMPLE))
        if angle:
            surface = pygame.transform.rotate(surface, angle)
        w, h = surface.get_size()
        left, top = round(x * SUPERSAMPLE - w / 2), round(y * SUPERSAMPLE - h / 2)
        self._surface.blit(surface, (left - self._left, top - self._top))

    def pixels(self) -> NDArray[np.uint8]:
        """The image, uint8 of shape (height, width, 3)."""
        drawn = Image.frombuffer("RGBX", self._surface.get_size(), self._surface.get_buffer(), "raw", "RGBX", 0, 1)
        averaged = bytearray(drawn.reduce(SUPERSAMPLE).tobytes("raw", "RGB"))
        return np.frombuffer(averaged, np.uint8).reshape(self.height, self.width, 3)

    def mask(self, colour: Colour) -> pygame.Mask:
        """Which samples, SUPERSAMPLE times SUPERSAMPLE for each pixel, have exactly this colour."""
        return pygame.mask.from_threshold(self._surface, colour, (1, 1, 1, 255))

    def _sample(self, x: float, y: float) -> tuple[int, int]:
        return round(x * SUPERSAMPLE) - self._left, round(y * SUPERSAMPLE) - self._top


_RGBX_BYTES = (0xFF, 0xFF00, 0xFF0000, 0) if sys.byteorder == "little" else (0xFF000000, 0xFF0000, 0xFF00, 0)
"""Masks that put red first in memory, and a byte that means nothing last."""

CAPITALS = 0.729
"""Height of the font's capitals over its size, from the font's metrics."""
BELOW_CAPITALS = 0.0645
"""How far the middle of a rendered line is below the middle of its capitals, over the font's size."""


def text_width(text: str, height: float) -> float:
    """Width in pixels of a line whose capitals have this height."""
    return _font(_font_size(height)).size(text)[0] / SUPERSAMPLE


def _font_size(capitals: float) -> int:
    return max(1, round(capitals * SUPERSAMPLE / CAPITALS))


@lru_cache(maxsize=64)
def _font(size: int) -> pygame.font.Font:
    pygame.font.init()
    return pygame.font.Font(pygame.font.get_default_font(), size)
