"""Locator images: a map on which the lights of cities draw the land, and a mark shows one place.

The projection is equirectangular and true to scale in the middle: a rounded cosine is all that it needs, so that the
pixels are the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.games.geospot.gazetteer import Gazetteer
from vlmgym.sandbox.rendering.canvas import Canvas, Colour, text_width
from vlmgym.sandbox.rendering.palette import blend

NIGHT: Colour = (13, 19, 38)
GRID: Colour = (44, 58, 92)
LABEL: Colour = (150, 168, 204)
LIGHT: Colour = (255, 196, 96)
BRIGHT: Colour = (255, 240, 208)
HALO: Colour = blend(NIGHT, LIGHT, 0.28)
MARK: Colour = (64, 232, 255)

GRID_STEPS = (1, 2, 5, 10, 15, 20, 30)
"""Degrees from line to line of a grid."""
COMMON_SPAN = 60
"""Degrees from the lower to the upper edge of a map whose lights are of common size."""
TICKS = 1.75
"""How far the ticks of a mark reach from its middle, over its radius."""
LINES = 5
"""Lines of a grid that a map has at least, from north to south."""


@dataclass(frozen=True, slots=True)
class Window:
    """What a square map shows.

    Attributes:
        latitude: Of the middle, in degrees.
        longitude: Of the middle, in degrees.
        span: Degrees of latitude from the lower to the upper edge.
    """

    latitude: float
    longitude: float
    span: float

    @property
    def width(self) -> float:
        """Degrees of longitude from the left to the right edge, at most 360."""
        return min(360.0, self.span / max(0.1, round(math.cos(math.radians(self.latitude)), 3)))


@dataclass(frozen=True, slots=True)
class MapStyle:
    """How a map is drawn.

    Attributes:
        size: Side in pixels.
        lights: Cities that are drawn, the largest of those on the map.
        names: Cities whose name is written beside them, the largest ones.
        grid: Whether there are meridians and parallels.
        degrees: Whether they are labelled.
        mark: Radius of the mark in percent of the side.
        crop: Share of width and height that will be cut away at the edges, where nothing is written.
    """

    size: int
    lights: int
    names: int
    grid: bool
    degrees: bool
    mark: float
    crop: float = 0.0

    @property
    def mark_radius(self) -> float:
        """Of the ring around the place, in pixels."""
        return max(3.0, self.size * self.mark / 100)

    @property
    def mark_reach(self) -> float:
        """How far the mark reaches from the place, over the side."""
        return TICKS * self.mark_radius / self.size


def window_around(latitude: float, longitude: float, span: float, right: float, up: float, crop: float = 0.0) -> Window:
    """A map on which a place is off the middle, as far as the poles allow.

    Args:
        latitude: Of the place.
        longitude: Of the place.
        span: Degrees from the lower to the upper edge, at most 180.
        right: How far the place is to the right of the middle, -0.5 (left edge) to 0.5.
        up: How far it is above the middle, likewise.
        crop: Share of width and height that will be cut away at the edges; what is left keeps off the poles.
    """
    reach = span * (1 - crop) / 2
    middle = min(max(latitude - up * span, reach - 90), 90 - reach)
    west = longitude - right * Window(middle, 0.0, span).width
    return Window(round(middle, 3), round((west + 180) % 360 - 180, 3), span)


def paint_map(window: Window, place: tuple[float, float], style: MapStyle, gazetteer: Gazetteer) -> NDArray[np.uint8]:
    """A map with a mark.

    Args:
        window: What it shows.
        place: Latitude and longitude of the mark, which is on the map.
        style: How it is drawn.
        gazetteer: Where the cities are from.

    Returns:
        uint8 RGB of shape (size, size, 3).
    """
    canvas = Canvas(style.size, style.size, NIGHT)
    if style.grid:
        _paint_grid(canvas, window)
    x, y = project(window, gazetteer.places, style.size)
    shown = np.flatnonzero((x >= 0) & (x < style.size) & (y >= 0) & (y < style.size))[: style.lights]
    spots = list(zip(shown.tolist(), x[shown].tolist(), y[shown].tolist(), gazetteer.populations[shown].tolist()))
    unit = style.size * round((COMMON_SPAN / window.span) ** 0.35, 2)
    for _, right, down, population in reversed(spots):
        radius, colour = _light(population)
        canvas.circle(right, down, radius * unit * 1.9, HALO)
        canvas.circle(right, down, radius * unit, colour)
    if style.grid and style.degrees:
        _paint_degrees(canvas, window, style.crop)
    mark = project(window, np.array([place]), style.size)
    at = float(mark[0][0]), float(mark[1][0])
    radius = style.mark_radius
    _paint_mark(canvas, *at, radius)
    if style.names:
        named = ((gazetteer.city_at(number).name, right, down) for number, right, down, _ in spots)
        _paint_names(canvas, named, style.names, (*at, radius), bool(style.grid and style.degrees), style.crop)
    return canvas.pixels()


def project(window: Window, places: NDArray[np.float64], size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where places are on a map.

    Args:
        window: What the map shows.
        places: Latitude and longitude, shape (number, 2).
        size: Side of the map in pixels.

    Returns:
        Pixels to the right of its left edge, and down from its upper one; of places beyond the edges, too.
    """
    y = (window.latitude + window.span / 2 - places[:, 0]) * (size / window.span)
    east = (places[:, 1] - window.longitude + 180) % 360 - 180
    x = (east + window.width / 2) * (size / window.width)
    return x, y


@lru_cache(maxsize=2**16)
def _light(population: int) -> tuple[float, Colour]:
    """Radius over the map's side, and colour: the more inhabitants, the larger and the whiter, by powers of ten."""
    first, digits = int(str(population)[0]), len(str(population))
    size = min(1.0, max(0.0, (digits - 5 + first / 10) / 3))
    return 0.0016 + 0.005 * size * size, blend(LIGHT, BRIGHT, size)


def _grid(window: Window) -> tuple[list[int], list[int]]:
    """Latitudes of the parallels and longitudes of the meridians on a map; these may be beyond 180 degrees."""
    step = max(each for each in GRID_STEPS if each == 1 or each * LINES <= window.span)
    across = max(each for each in GRID_STEPS if each == 1 or each * LINES <= window.width)
    south, west = window.latitude - window.span / 2, window.longitude - window.width / 2
    parallels = range(math.ceil(south / step) * step, math.floor(south + window.span) + 1, step)
    meridians = range(math.ceil(west / across) * across, math.floor(west + window.width) + 1, across)
    return list(parallels), list(meridians)


def _paint_grid(canvas: Canvas, window: Window) -> None:
    for _, y in _parallels(canvas, window):
        canvas.line((0, y), (canvas.width, y), max(1.0, canvas.width / 640), GRID)
    for _, x in _meridians(canvas, window):
        canvas.line((x, 0), (x, canvas.height), max(1.0, canvas.width / 640), GRID)


def _paint_degrees(canvas: Canvas, window: Window, crop: float) -> None:
    """Degrees at the left edge and at the lower edge of what is not cut away, on a ground of their own."""
    capitals = canvas.width / 52
    near = canvas.width * crop / 2
    far = canvas.width - near
    for latitude, y in _parallels(canvas, window):
        if near + capitals < y < far - 4 * capitals:
            _paint_label(canvas, _degrees(latitude, "N", "S"), near + capitals * 0.6, y, capitals, LABEL)
    for longitude, x in _meridians(canvas, window):
        text = _degrees((longitude + 180) % 360 - 180, "E", "W")
        left = x - text_width(text, capitals) / 2
        if left > near + capitals * 4.5 and left + text_width(text, capitals) < far:
            _paint_label(canvas, text, left, far - capitals * 1.3, capitals, LABEL)


def _parallels(canvas: Canvas, window: Window) -> Iterator[tuple[int, float]]:
    for latitude in _grid(window)[0]:
        yield latitude, (window.latitude + window.span / 2 - latitude) * canvas.height / window.span


def _meridians(canvas: Canvas, window: Window) -> Iterator[tuple[int, float]]:
    for longitude in _grid(window)[1]:
        yield longitude, (longitude - window.longitude + window.width / 2) * canvas.width / window.width


def _degrees(degrees: int, positive: str, negative: str) -> str:
    side = positive if degrees > 0 else negative if degrees < 0 else ""
    return f"{abs(degrees)}°{'' if degrees == -180 else side}"


def _paint_label(canvas: Canvas, text: str, left: float, y: float, capitals: float, colour: Colour) -> None:
    width = text_width(text, capitals)
    canvas.rectangle(
        left - capitals * 0.4, y - capitals, width + capitals * 0.8, capitals * 2, NIGHT, radius=capitals * 0.5
    )
    canvas.text(text, left, y, capitals, colour, align="left")


def _paint_mark(canvas: Canvas, x: float, y: float, radius: float) -> None:
    """A ring with four ticks around a place, whose light stays to be seen."""
    thickness = max(1.5, radius * 0.22)
    corners = 64
    rim = [(2 * math.pi * i / corners, 2 * math.pi * (i + 1) / corners) for i in range(corners)]
    for start, end in rim:
        canvas.polygon(
            [
                (x + distance * round(math.cos(angle), 4), y + distance * round(math.sin(angle), 4))
                for angle, distance in (
                    (start, radius),
                    (end, radius),
                    (end, radius - thickness),
                    (start, radius - thickness),
                )
            ],
            MARK,
        )
    for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        inner, outer = radius * 0.62, radius * TICKS
        canvas.line((x + dx * inner, y + dy * inner), (x + dx * outer, y + dy * outer), thickness, MARK)


def _paint_names(
    canvas: Canvas,
    spots: Iterable[tuple[str, float, float]],
    count: int,
    mark: tuple[float, float, float],
    degrees: bool,
    crop: float,
) -> None:
    """Names of the largest cities, where they cover neither each other nor the mark; never the marked city's own."""
    capitals = canvas.width / 50
    x, y, radius = mark
    reach = radius * 2.2
    margin_left, margin_below = (capitals * 4.5, capitals * 3) if degrees else (capitals, capitals)
    near = canvas.width * crop / 2
    far = canvas.width - near
    taken = [(x - reach, y - reach, x + reach, y + reach)]
    for name, city_x, city_y in spots:
        if len(taken) > count:
            return
        width = text_width(name, capitals)
        left, top = city_x + capitals * 0.9, city_y - capitals
        box = (left - capitals * 1.5, top, left + width + capitals * 0.5, top + 2 * capitals)
        inside = box[0] > near + margin_left and box[2] < far and box[1] > near and box[3] < far - margin_below
        if inside and name.isascii() and not any(map(_overlap, taken, [box] * len(taken))):
            _paint_label(canvas, name, left, city_y, capitals, BRIGHT)
            taken.append(box)


Box = tuple[float, float, float, float]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
