"""Maps of land and sea at night that show cities as lights, with one of them marked.

The projection is equirectangular and true to scale at the centre. The results of transcendental functions are rounded,
so pixels are identical on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import Canvas, Colour, blend, text_width
from vlmgym.sandbox.drawing.degrade import blur
from vlmgym.sandbox.games.geospot.config import GeospotConfig
from vlmgym.sandbox.games.geospot.gazetteer import Gazetteer

NIGHT: Colour = (13, 19, 38)
SHALLOWS: Colour = (19, 36, 62)
LAND: Colour = (33, 40, 51)
SHORE: Colour = (82, 104, 132)
GRID: Colour = (44, 58, 92)
LABEL: Colour = (150, 168, 204)
LIGHT: Colour = (255, 196, 96)
BRIGHT: Colour = (255, 240, 208)
BOX: Colour = (8, 12, 26)
HALO: Colour = blend(NIGHT, LIGHT, 0.28)
MARK: Colour = (64, 232, 255)
GROUND = np.array(
    [[blend(low, high, share / 127)] for low, high in ((NIGHT, SHALLOWS), (LAND, SHORE)) for share in range(128)],
    np.uint8,
)
"""Colours of water, the nearer to land the lighter, and of land, from inland to the shore."""

GRID_STEPS = (1, 2, 5, 10, 15, 20, 30)
"""Possible spacings of the grid in degrees."""
REFERENCE_SPAN = 60
"""Map height in degrees at which lights have their nominal size."""
TICKS = 1.75
"""Distance from the mark's centre to the ends of its ticks, relative to the radius of its ring."""
MIN_GRID_LINES = 5
"""Minimum number of grid lines in each direction."""
SUBPIXEL_BITS = 4
SUBPIXELS = 1 << SUBPIXEL_BITS
"""Units of the outlines of land per pixel."""


@dataclass(frozen=True, slots=True)
class Viewport:
    """The area of a square map: latitude and longitude of its centre, and its height in degrees of latitude."""

    latitude: float
    longitude: float
    span: float

    @property
    def width(self) -> float:
        """Width in degrees of longitude, at most 360."""
        return min(360.0, self.span / max(0.1, round(math.cos(math.radians(self.latitude)), 3)))


def mark_radius(config: GeospotConfig) -> float:
    """Radius of the mark's ring in pixels."""
    return max(3.0, config.size * config.mark / 100)


def mark_reach(config: GeospotConfig) -> float:
    """Distance from the mark's centre to the ends of its ticks, relative to the map's side."""
    return TICKS * mark_radius(config) / config.size


def viewport_around(
    latitude: float, longitude: float, span: float, right: float, up: float, crop: float = 0.0
) -> Viewport:
    """Place a viewport so that a location, in degrees, appears at given offsets from the centre.

    `right` and `up` are the location's offsets from the centre, relative to the map's side, -0.5 to 0.5. If the cropped
    map would extend beyond a pole, the viewport is shifted, which changes the offset `up`.
    """
    reach = span * (1 - crop) / 2
    middle = min(max(latitude - up * span, reach - 90), 90 - reach)
    west = longitude - right * Viewport(middle, 0.0, span).width
    return Viewport(round(middle, 3), round((west + 180) % 360 - 180, 3), span)


def paint_map(
    viewport: Viewport, mark: tuple[float, float], config: GeospotConfig, gazetteer: Gazetteer
) -> NDArray[np.uint8]:
    """Draw a map with a mark at a latitude and longitude inside the viewport: uint8 (size, size, 3).

    The margin that is cropped later gets no labels.
    """
    canvas = Canvas(config.size, config.size, NIGHT)
    _paint_grid(canvas, viewport)
    x, y = project(viewport, gazetteer.coordinates, config.size)
    shown = np.flatnonzero((x >= 0) & (x < config.size) & (y >= 0) & (y < config.size))[: config.lights]
    spots = list(zip(shown.tolist(), x[shown].tolist(), y[shown].tolist(), gazetteer.populations[shown].tolist()))
    unit = config.size * round((REFERENCE_SPAN / viewport.span) ** 0.35, 2)
    for _, right, down, population in reversed(spots):
        radius, colour = _light(population)
        canvas.circle(right, down, radius * unit * 1.9, HALO)
        canvas.circle(right, down, radius * unit, colour)
    if config.degrees:
        _paint_degrees(canvas, viewport, config.crop)
    mark_x, mark_y = (float(axis[0]) for axis in project(viewport, np.array([mark]), config.size))
    ring = mark_x, mark_y, mark_radius(config)
    _paint_mark(canvas, *ring)
    if config.names:
        named = ((gazetteer.city_at(number).name, right, down) for number, right, down, _ in spots)
        _paint_names(canvas, named, config.names, ring, config.degrees, config.crop)
    image = canvas.pixels()
    _fill_in_land(image, viewport, gazetteer)
    return image


def project(
    viewport: Viewport, places: NDArray[np.float64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Project latitudes and longitudes, shape (n, 2), to pixel coordinates x and y from the map's top left corner."""
    y = (viewport.latitude + viewport.span / 2 - places[:, 0]) * (size / viewport.span)
    east = (places[:, 1] - viewport.longitude + 180) % 360 - 180
    x = (east + viewport.width / 2) * (size / viewport.width)
    return x, y


def _fill_in_land(image: NDArray[np.uint8], viewport: Viewport, gazetteer: Gazetteer) -> None:
    """Draw land, its shores and shallow water along them where a map, uint8 (size, size, 3), is still empty."""
    import cv2

    size = len(image)
    scale = np.array([-size / viewport.span, size / viewport.width]) * SUBPIXELS
    lowest, highest = gazetteer.shore_boxes
    outlines = []
    for turn in (-360, 0, 360):
        corner = np.array([viewport.latitude + viewport.span / 2, viewport.longitude - viewport.width / 2 + turn])
        south, east = corner + (-viewport.span, viewport.width)
        shown = (highest > (south, corner[1])) & (lowest < (corner[0], east))
        for number in np.flatnonzero(shown.all(axis=1)).tolist():
            points = np.rint((gazetteer.shores[number] - corner) * scale - SUBPIXELS / 2)
            outlines.append(points[:, ::-1].astype(np.int32))
    land = np.zeros((size, size), np.uint8)
    cv2.fillPoly(land, outlines, 255, cv2.LINE_AA, SUBPIXEL_BITS)
    shore = np.asarray(cv2.morphologyEx(land, cv2.MORPH_GRADIENT, np.ones((2, 2), np.uint8)), np.uint8) >> 1
    ground = np.where((land > 127) | (shore > 31), shore + 128, blur(land, size // 40) >> 1)
    cv2.copyTo(cv2.applyColorMap(ground, GROUND), cv2.inRange(image, NIGHT, NIGHT), image)


@lru_cache(maxsize=2**16)
def _light(population: int) -> tuple[float, Colour]:
    """Return the nominal radius, relative to the map's side, and the colour of a city's light.

    Larger cities have larger and whiter lights.
    """
    first, digits = int(str(population)[0]), len(str(population))
    size = min(1.0, max(0.0, (digits - 5 + first / 10) / 3))
    return 0.0016 + 0.005 * size * size, blend(LIGHT, BRIGHT, size)


def _grid(start: float, length: float) -> range:
    """Positions of the grid lines along an axis of the map, in degrees; longitudes may exceed 180."""
    step = max(step for step in GRID_STEPS if step == 1 or step * MIN_GRID_LINES <= length)
    return range(math.ceil(start / step) * step, math.floor(start + length) + 1, step)


def _paint_grid(canvas: Canvas, viewport: Viewport) -> None:
    for _, y in _parallels(canvas, viewport):
        canvas.line((0, y), (canvas.width, y), max(1.0, canvas.width / 640), GRID)
    for _, x in _meridians(canvas, viewport):
        canvas.line((x, 0), (x, canvas.height), max(1.0, canvas.width / 640), GRID)


def _paint_degrees(canvas: Canvas, viewport: Viewport, crop: float) -> None:
    """Label parallels at the left edge and meridians at the lower edge of the cropped map."""
    capitals = canvas.width / 52
    near = canvas.width * crop / 2
    far = canvas.width - near
    for latitude, y in _parallels(canvas, viewport):
        if near + capitals < y < far - 4 * capitals:
            _paint_label(canvas, _degrees(latitude, "N", "S"), near + capitals * 0.6, y, capitals, LABEL)
    for longitude, x in _meridians(canvas, viewport):
        text = _degrees((longitude + 180) % 360 - 180, "E", "W")
        left = x - text_width(text, capitals) / 2
        if left > near + capitals * 4.5 and left + text_width(text, capitals) < far:
            _paint_label(canvas, text, left, far - capitals * 1.3, capitals, LABEL)


def _parallels(canvas: Canvas, viewport: Viewport) -> Iterator[tuple[int, float]]:
    for latitude in _grid(viewport.latitude - viewport.span / 2, viewport.span):
        yield latitude, (viewport.latitude + viewport.span / 2 - latitude) * canvas.height / viewport.span


def _meridians(canvas: Canvas, viewport: Viewport) -> Iterator[tuple[int, float]]:
    for longitude in _grid(viewport.longitude - viewport.width / 2, viewport.width):
        yield longitude, (longitude - viewport.longitude + viewport.width / 2) * canvas.width / viewport.width


def _degrees(degrees: int, positive: str, negative: str) -> str:
    side = positive if degrees > 0 else negative if degrees < 0 else ""
    return f"{abs(degrees)}°{'' if degrees == -180 else side}"


def _paint_label(canvas: Canvas, text: str, left: float, y: float, capitals: float, colour: Colour) -> None:
    width = text_width(text, capitals)
    canvas.rectangle(
        left - capitals * 0.4, y - capitals, width + capitals * 0.8, capitals * 2, BOX, radius=capitals * 0.5
    )
    canvas.text(text, left, y, capitals, colour, align="left")


def _paint_mark(canvas: Canvas, x: float, y: float, radius: float) -> None:
    """Draw a ring with four ticks, so that the city in the ring stays visible."""
    thickness = max(1.5, radius * 0.22)
    corners = 64
    inside = radius - thickness
    for i in range(corners):
        start, end = 2 * math.pi * i / corners, 2 * math.pi * (i + 1) / corners
        quadrilateral = ((start, radius), (end, radius), (end, inside), (start, inside))
        canvas.polygon(
            [(x + r * round(math.cos(angle), 4), y + r * round(math.sin(angle), 4)) for angle, r in quadrilateral], MARK
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
    """Label up to `count` cities other than the marked one, the largest first, without overlaps.

    Cities whose names are not ASCII, or whose labels do not fit, are skipped.
    """
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
        overlapping = (a[0] < box[2] and box[0] < a[2] and a[1] < box[3] and box[1] < a[3] for a in taken)
        if inside and name.isascii() and not any(overlapping):
            _paint_label(canvas, name, left, city_y, capitals, BRIGHT)
            taken.append(box)
