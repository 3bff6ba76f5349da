"""A small anti-aliased canvas with identical pixels on every machine.

Pygame draws shapes and glyphs without anti-aliasing at four times the size, and Pillow averages them in integer
arithmetic, because pygame's own smooth scaling differs between processors. The font is bundled with pygame.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

if TYPE_CHECKING:
    import pygame

SUPERSAMPLE = 4

Colour = tuple[int, int, int]
Point = tuple[float, float]


class Canvas:
    """An RGB surface of width x height pixels; coordinates are in pixels, x to the right and y down.

    It can be a crop of a larger image: (`left`, `top`) is then its upper left pixel, and coordinates refer to the
    larger image.
    """

    def __init__(self, width: int, height: int, background: Colour, *, left: int = 0, top: int = 0) -> None:
        import pygame

        self.width, self.height = width, height
        self._left, self._top = left * SUPERSAMPLE, top * SUPERSAMPLE
        self._surface = pygame.Surface((width * SUPERSAMPLE, height * SUPERSAMPLE), depth=32, masks=_RGBX_BYTES)
        self._surface.fill(background)

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour, radius: float = 0) -> None:
        """Draw a filled rectangle with rounded corners."""
        import pygame

        left, top, right, bottom = (round(v * SUPERSAMPLE) for v in (x, y, x + width, y + height))
        area = pygame.Rect(left - self._left, top - self._top, right - left, bottom - top)
        pygame.draw.rect(self._surface, colour, area, border_radius=round(radius * SUPERSAMPLE))

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        """Draw a filled polygon."""
        import pygame

        pygame.draw.polygon(self._surface, colour, [self._sample(x, y) for x, y in points])

    def circle(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Draw a filled circle."""
        import pygame

        pygame.draw.circle(self._surface, colour, self._sample(x, y), round(radius * SUPERSAMPLE))

    def line(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """Draw a straight line with square ends."""
        length = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
        dx, dy = (end[1] - start[1]) / length * width / 2, (start[0] - end[0]) / length * width / 2
        (x0, y0), (x1, y1) = start, end
        self.polygon([(x0 + dx, y0 + dy), (x1 + dx, y1 + dy), (x1 - dx, y1 - dy), (x0 - dx, y0 - dy)], colour)

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
        """Draw one line of text with the given cap height, shrunk to `max_width`, at an angle counter-clockwise.

        `x` is the centre or edge selected by `align` (`centre`, `left` or `right`), `y` the middle of the capitals.
        """
        import pygame

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
        """Draw an image at its original size around a centre, at an angle in degrees counter-clockwise."""
        import pygame

        height, width, _ = pixels.shape
        if angle:  # transparent corners; several times slower to draw
            pixels = np.dstack([pixels, np.full((height, width), 255, np.uint8)])
        surface = pygame.image.frombuffer(pixels.tobytes(), (width, height), "RGBA" if angle else "RGB")
        surface = pygame.transform.scale(surface, (width * SUPERSAMPLE, height * SUPERSAMPLE))
        if angle:
            surface = pygame.transform.rotate(surface, angle)
        w, h = surface.get_size()
        left, top = round(x * SUPERSAMPLE - w / 2), round(y * SUPERSAMPLE - h / 2)
        self._surface.blit(surface, (left - self._left, top - self._top))

    def pixels(self) -> NDArray[np.uint8]:
        """Downsample to a uint8 array of shape (height, width, 3)."""
        drawn = Image.frombuffer("RGBX", self._surface.get_size(), self._surface.get_buffer(), "raw", "RGBX", 0, 1)
        averaged = bytearray(drawn.reduce(SUPERSAMPLE).tobytes("raw", "RGB"))
        return np.frombuffer(averaged, np.uint8).reshape(self.height, self.width, 3)

    def mask(self, colour: Colour) -> pygame.Mask:
        """Mask of the samples, SUPERSAMPLE x SUPERSAMPLE per pixel, with exactly this colour."""
        import pygame

        return pygame.mask.from_threshold(self._surface, colour, (1, 1, 1, 255))

    def _sample(self, x: float, y: float) -> tuple[int, int]:
        return round(x * SUPERSAMPLE) - self._left, round(y * SUPERSAMPLE) - self._top


_RGBX_BYTES = (0xFF, 0xFF00, 0xFF0000, 0) if sys.byteorder == "little" else (0xFF000000, 0xFF0000, 0xFF00, 0)
"""Channel masks for red first in memory and an unused byte last."""

CAPITALS = 0.729
"""Cap height of the font relative to its size."""
BELOW_CAPITALS = 0.0645
"""Distance from the middle of the capitals down to the middle of a rendered line, relative to the font's size."""


def text_width(text: str, height: float) -> float:
    """Width in pixels of a line of text with this cap height."""
    return _font(_font_size(height)).size(text)[0] / SUPERSAMPLE


def _font_size(capitals: float) -> int:
    return max(1, round(capitals * SUPERSAMPLE / CAPITALS))


@lru_cache(maxsize=64)
def _font(size: int) -> pygame.font.Font:
    import pygame

    pygame.font.init()
    return pygame.font.Font(pygame.font.get_default_font(), size)
