"""A small anti-aliased canvas with identical pixels on every machine, and the colours of themes and looks.

Pygame draws shapes and glyphs without anti-aliasing at four times the size, and the samples are averaged in integer
arithmetic, because pygame's own smooth scaling differs between processors. Fonts are bundled with pygame (`sans`) and
matplotlib (DejaVu).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

if TYPE_CHECKING:
    import pygame

SUPERSAMPLE = 4

FontName = Literal["sans", "serif", "mono"]

Colour = tuple[int, int, int]
Point = tuple[float, float]


class Canvas:
    """An RGB surface of width x height pixels. Coordinates are x to the right and y down.

    Coordinates and lengths that are drawn are in units of `unit` pixels. A canvas can be a crop of a larger image.
    Coordinates then refer to the larger image, where the upper left pixel of the canvas is the pixel (`left`, `top`).
    """

    def __init__(
        self,
        width: int,
        height: int,
        background: Colour,
        *,
        left: int = 0,
        top: int = 0,
        unit: float = 1.0,
        font: FontName = "sans",
    ) -> None:
        self.width, self.height, self.unit, self._font = width, height, unit, font
        self._left, self._top = left * SUPERSAMPLE, top * SUPERSAMPLE
        self._samples = _Samples(width * SUPERSAMPLE, height * SUPERSAMPLE, background)

    def in_pixels(self) -> Canvas:
        """Return the same canvas with pixels as units."""
        pixels = copy(self)
        pixels.unit = 1.0
        return pixels

    def rectangle(self, x: float, y: float, width: float, height: float, colour: Colour, radius: float = 0) -> None:
        """Draw a filled rectangle; its corners are rounded by `radius`."""
        import pygame

        scale = self.unit * SUPERSAMPLE
        x, y, width, height = x * scale, y * scale, width * scale, height * scale
        left, top = round(x) - self._left, round(y) - self._top
        right, bottom = round(x + width) - self._left, round(y + height) - self._top
        area = pygame.Rect(left, top, right - left, bottom - top)
        surface, rounding = self._samples.to_draw(colour), round(radius * scale)
        if rounding > 0 or area.width <= 0 or area.height <= 0:
            pygame.draw.rect(surface, colour, area, border_radius=rounding)
        elif area := area.clip(surface.get_rect()):  # a polygon takes a tenth of the time of `draw.rect`
            right, bottom = area.right - 1, area.bottom - 1
            corners = [area.topleft, (right, area.top), (right, bottom), (area.left, bottom)]
            pygame.draw.polygon(surface, colour, corners)

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        """Draw a filled polygon."""
        self._fill(points, self.unit, colour)

    def _fill(self, points: Sequence[Point], unit: float, colour: Colour) -> None:
        import pygame

        left, top, scale = self._left, self._top, unit * SUPERSAMPLE
        samples = [(round(x * scale) - left, round(y * scale) - top) for x, y in points]
        pygame.draw.polygon(self._samples.to_draw(colour), colour, samples)

    def circle(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """Draw a filled circle."""
        import pygame

        scale = self.unit * SUPERSAMPLE
        centre = round(x * scale) - self._left, round(y * scale) - self._top
        pygame.draw.circle(self._samples.to_draw(colour), colour, centre, round(radius * scale))

    def line(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """Draw a straight line with flat ends, exactly from `start` to `end`."""
        x0, y0, x1, y1, width = (v * self.unit for v in (*start, *end, width))
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        dx, dy = (y1 - y0) / length * width / 2, (x0 - x1) / length * width / 2
        corners = [(x0 + dx, y0 + dy), (x1 + dx, y1 + dy), (x1 - dx, y1 - dy), (x0 - dx, y0 - dy)]
        self._fill(corners, 1.0, colour)

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
        """Draw one line of text.

        Args:
            text: The line.
            x: Centre or edge of the text, as selected by `align`.
            y: Vertical middle of the capitals.
            height: Cap height.
            colour: Colour.
            max_width: Width to which wider text is shrunk.
            angle: Rotation in degrees counter-clockwise.
            align: `centre`, `left` or `right`.
        """
        import pygame

        x, y, height, max_width = (v * self.unit for v in (x, y, height, max_width))
        size = _font_size(height)
        if (width := _font(size, self._font).size(text)[0]) > max_width * SUPERSAMPLE:
            size = max(1, int(size * max_width * SUPERSAMPLE / width))
        glyphs = _font(size, self._font).render(text, False, colour)
        width = glyphs.get_width()
        shift = {"centre": 0.0, "left": width / 2, "right": -width / 2}[align]
        below = size * BELOW_CAPITALS[self._font]
        turn = math.radians(angle)
        centre_x = x * SUPERSAMPLE + shift * math.cos(turn) + below * math.sin(turn)
        centre_y = y * SUPERSAMPLE - shift * math.sin(turn) + below * math.cos(turn)
        if angle:
            glyphs = pygame.transform.rotate(glyphs, angle)
        w, h = glyphs.get_size()
        corner = round(centre_x - w / 2) - self._left, round(centre_y - h / 2) - self._top
        self._samples.to_draw(colour).blit(glyphs, corner)

    def image(self, pixels: NDArray[np.uint8], x: float, y: float, angle: float = 0.0) -> None:
        """Draw an image at its original size, centred at (x, y) and rotated by `angle` degrees counter-clockwise."""
        import pygame

        height, width, _ = pixels.shape
        if angle:  # transparent corners; several times slower to draw
            pixels = np.dstack([pixels, np.full((height, width), 255, np.uint8)])
        surface = pygame.image.frombuffer(pixels.tobytes(), (width, height), "RGBA" if angle else "RGB")
        surface = pygame.transform.scale(surface, (width * SUPERSAMPLE, height * SUPERSAMPLE))
        if angle:
            surface = pygame.transform.rotate(surface, angle)
        w, h = surface.get_size()
        x, y = x * self.unit, y * self.unit
        left, top = round(x * SUPERSAMPLE - w / 2), round(y * SUPERSAMPLE - h / 2)
        self._samples.to_draw(None).blit(surface, (left - self._left, top - self._top))

    def pixels(self) -> NDArray[np.uint8]:
        """Return the downsampled image, uint8 of shape (height, width, 3)."""
        return self._samples.averaged()

    def mask(self, colour: Colour) -> pygame.Mask:
        """Return a mask of the samples with exactly this colour; each pixel has SUPERSAMPLE x SUPERSAMPLE samples."""
        import pygame

        surface = self._samples.to_draw(colour)
        surface.set_colorkey(colour)
        others = pygame.mask.from_surface(surface)
        surface.set_colorkey(None)
        others.invert()
        return others


class _Samples:
    """The samples of a canvas: numbers of colours, one byte each, until an image or a 257th colour is drawn.

    Most pixels have 16 equal samples. Numbers are therefore drawn and averaged several times as fast as RGB values.
    """

    def __init__(self, width: int, height: int, background: Colour) -> None:
        import pygame

        self.surface = pygame.Surface((width, height), depth=8)
        self._colours: dict[Colour, None] | None = {}
        """Colours in the order of their numbers; None once the samples are RGB values."""
        self.to_draw(background)  # its number is 0, which fills the surface
        if self._colours is None:
            self.surface.fill(background)

    def to_draw(self, colour: Colour | None) -> pygame.Surface:
        """Return the surface, on which this colour can be drawn; None stands for any number of colours."""
        if self._colours is None or (isinstance(colour, tuple) and colour in self._colours):
            return self.surface
        if isinstance(colour, tuple) and len(self._colours) < 256:
            self.surface.set_palette_at(len(self._colours), colour)
            self._colours[colour] = None
        else:  # games of users may also have pygame's other kinds of colours, such as names
            import pygame

            numbers, self._colours = self.surface, None
            self.surface = pygame.Surface(numbers.get_size(), depth=32, masks=_RGBX_BYTES)
            self.surface.blit(numbers, (0, 0))
        return self.surface

    def averaged(self) -> NDArray[np.uint8]:
        """Return the mean of the samples of each pixel, rounded half up, uint8 of shape (height, width, 3)."""
        width, height = (size // SUPERSAMPLE for size in self.surface.get_size())
        if self._colours is None:
            drawn = Image.frombuffer("RGBX", self.surface.get_size(), self.surface.get_buffer(), "raw", "RGBX", 0, 1)
            averaged = bytearray(drawn.reduce(SUPERSAMPLE).tobytes("raw", "RGB"))
            return np.frombuffer(averaged, np.uint8).reshape(height, width, 3)
        colours = np.array([(*colour[:3], 0) for colour in self._colours], np.uint8)
        samples: NDArray[np.uint8] = np.asarray(self.surface.get_view("2")).T
        words = samples.view(np.uint32).reshape(height, SUPERSAMPLE, width)  # 4 samples each
        first = samples[::SUPERSAMPLE, ::SUPERSAMPLE].astype(np.intp)
        pixels: NDArray[np.uint8] = colours[:, :3].take(first, axis=0)
        equal = first.astype(np.uint32) * np.uint32(0x01010101)
        mixed = words[:, 0] != equal
        for row in range(1, SUPERSAMPLE):
            mixed |= words[:, row] != equal
        rows, columns = np.divmod(np.flatnonzero(mixed), width)
        summands = colours.astype(np.uint16).view(np.uint64)[:, 0]  # 16 bits each for red, green and blue
        sums = np.zeros(len(rows), np.uint64)
        for row in range(SUPERSAMPLE):
            sums += sum(summands.take(words[rows, row, columns].view(np.uint8)).reshape(-1, SUPERSAMPLE).T)
        means = (sums.view(np.uint16).reshape(-1, 4)[:, :3] + SUPERSAMPLE**2 // 2) // SUPERSAMPLE**2
        pixels[rows, columns] = means
        return pixels


_RGBX_BYTES = (0xFF, 0xFF00, 0xFF0000, 0) if sys.byteorder == "little" else (0xFF000000, 0xFF0000, 0xFF00, 0)
"""Channel masks of a surface whose bytes in memory are red, green, blue and unused."""

CAPITALS = 0.729
"""Cap height of the fonts relative to their size."""
LINE_PITCH = 2.0
"""Line spacing of paragraphs relative to the cap height."""
BELOW_CAPITALS: dict[FontName, float] = {"sans": 0.0645, "serif": 0.013, "mono": 0.018}
"""Distance from the middle of the capitals down to the middle of a rendered line, relative to the font's size."""
DEJAVU = {"serif": "DejaVuSerif-Bold.ttf", "mono": "DejaVuSansMono-Bold.ttf"}


def text_width(text: str, height: float) -> float:
    """Return the width in pixels of a line of text with cap height `height`."""
    return _font(_font_size(height), "sans").size(text)[0] / SUPERSAMPLE


def _font_size(capitals: float) -> int:
    return max(1, round(capitals * SUPERSAMPLE / CAPITALS))


@lru_cache(maxsize=64)
def _font(size: int, name: FontName) -> pygame.font.Font:
    import pygame

    pygame.font.init()
    if name == "sans":
        return pygame.font.Font(pygame.font.get_default_font(), size)
    return pygame.font.Font(str(files("matplotlib") / "mpl-data" / "fonts" / "ttf" / DEJAVU[name]), size)


# Paragraphs -----------------------------------------------------------------------------------------------------------


def wrap(text: str, height: float, width: float) -> list[str]:
    """Wrap text with cap height `height` to lines of at most `width` pixels; keep line breaks, split long words."""
    lines = []
    for paragraph in text.splitlines():
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if text_width(longer, height) <= width:
                line = longer
                continue
            if line:
                lines.append(line)
            while text_width(word, height) > width and len(word) > 1:
                fitting = len(word) - 1
                while fitting > 1 and text_width(word[:fitting], height) > width:
                    fitting -= 1
                lines.append(word[:fitting])
                word = word[fitting:]
            line = word
        lines.append(line)
    return lines


def fit(text: str, width: float, height: float, largest: float, smallest: float) -> tuple[list[str], float]:
    """Wrap text to fit a box of `width` x `height` pixels; return the lines and their cap height.

    The cap height is the largest that fits, from `largest` down to `smallest` in steps of half a pixel. Text that does
    not fit even at the smallest is cut at a line break and ends with an ellipsis on its own line.
    """
    capitals = largest
    while True:
        lines = wrap(text, capitals, width)
        room = int(height / (capitals * LINE_PITCH))
        if len(lines) <= room:
            return lines, capitals
        if capitals <= smallest:
            return [*lines[: max(0, room - 1)], "..."], capitals
        capitals = max(smallest, capitals - 0.5)


def write_lines(canvas: Canvas, lines: Sequence[str], x: float, y: float, capitals: float, colour: Colour) -> None:
    """Draw left-aligned lines from (x, y) downwards."""
    for line in lines:
        y += capitals * LINE_PITCH
        canvas.text(line, x, y - capitals * LINE_PITCH / 2, capitals, colour, align="left")


# Colours --------------------------------------------------------------------------------------------------------------

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of page, board, empty cells, plain tiles and coordinate labels."""

    page: Colour
    board: Colour
    empty: Colour
    tile: Colour
    label: Colour


THEMES: dict[ThemeName, Theme] = {
    "light": Theme(
        page=(250, 248, 243), board=(187, 176, 164), empty=(205, 196, 184), tile=(252, 250, 246), label=(110, 100, 90)
    ),
    "dark": Theme(
        page=(22, 25, 33), board=(46, 52, 66), empty=(59, 66, 82), tile=(236, 239, 244), label=(170, 180, 196)
    ),
}


@dataclass(frozen=True, slots=True)
class Look:
    """Colours of a drawn picture: page, areas on it, ink, faint lines, and seven accents."""

    page: Colour
    panel: Colour
    ink: Colour
    faint: Colour
    accents: tuple[Colour, ...]


COLOURS: dict[str, Colour] = {
    "red": (200, 24, 30),
    "blue": (14, 114, 236),
    "green": (34, 138, 44),
    "yellow": (236, 204, 14),
    "purple": (140, 24, 182),
    "cyan": (10, 186, 206),
    "orange": (250, 122, 18),
    "pink": (242, 130, 188),
}
"""Tile colours by name."""

OUTCOME_COLOURS: dict[str, Colour] = {
    "played": (96, 200, 120),
    "illegal": (250, 160, 60),
    "unparsable": (242, 92, 92),
}
"""Colours of outcomes on a dark background."""

WHITE: Colour = (255, 255, 255)
BLACK: Colour = (0, 0, 0)
MIDDLE: Colour = (128, 122, 120)
"""Grey that tile colours approach as their similarity rises."""


def blend(colour: Colour, other: Colour, share: float) -> Colour:
    """Mix two colours; `share` is the fraction of `other`, 0 to 1."""
    r, g, b = (round(a + (c - a) * share) for a, c in zip(colour, other))
    return r, g, b


_DEEP = ((202, 62, 55), (38, 104, 178), (56, 132, 74), (222, 152, 38), (124, 74, 160), (24, 142, 152), (206, 94, 146))
_PALE = tuple(blend(colour, WHITE, 0.45) for colour in _DEEP)

LookName = Literal["paper", "slate", "blueprint", "plain"]

LOOKS: dict[LookName, Look] = {
    "paper": Look((243, 235, 217), (251, 246, 234), (58, 50, 44), (206, 192, 166), _DEEP),
    "slate": Look((40, 56, 54), (50, 68, 65), (238, 240, 232), (98, 118, 112), _PALE),
    "blueprint": Look((24, 62, 116), (33, 74, 132), (232, 241, 255), (92, 132, 188), _PALE),
    "plain": Look((255, 255, 255), (243, 245, 249), (32, 36, 46), (206, 211, 221), _DEEP),
}
"""Looks by name; each question of a task may have another one."""
