"""Degrade images: crop, clutter, contrast, scale, blur and noise.

All pixel arithmetic is in integers, so that the same image and seed give the same pixels on every machine. OpenCV is
not used: its `INTER_AREA` and `sepFilter2D` are faster but round floats, and its exact functions are slower than this
module (docs/log.md).
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import Colour
from vlmgym.sandbox.drawing.palette import COLOURS, THEMES, blend

Pixels = NDArray[np.uint8]
"""An RGB image, uint8, shape (height, width, 3)."""
Point = tuple[int, int]

FRAME: Colour = THEMES["light"].board
"""Colour around a shrunk image."""
UNIT = 256
"""Strokes are drawn in units of 1/256 pixel."""


class Degradation(Protocol):
    """Config fields that this module uses; `DegradedConfig` documents them."""

    blur: float
    noise: float
    contrast: float
    clutter: int
    scale: float
    crop: float


def degrade(image: Pixels, how: Degradation, seed: int, index: int = 0) -> Pixels:
    """Crop, clutter, change contrast, scale, blur and add noise, in this order.

    Args:
        image: The image. It is not modified; if no effect applies, it is returned without a copy.
        how: Strengths of the effects.
        seed: Seed for strokes and noise.
        index: Index of the image in its question, which gives each image its own strokes and noise.
    """
    height, width, _ = image.shape
    rng = np.random.default_rng([seed, index])
    if how.crop:
        cut_rows, cut_columns = crop_margin(height, how.crop), crop_margin(width, how.crop)
        image = resize(image[cut_rows : height - cut_rows, cut_columns : width - cut_columns], height, width)
    if how.clutter:
        image = _scribble(image, how.clutter, rng)
    if how.contrast != 1:
        image = _change_contrast(image, how.contrast)
    if how.scale != 1:
        inner = resize(image, max(1, round(height * how.scale)), max(1, round(width * how.scale)))
        image = np.full_like(image, FRAME)
        top, left = (height - inner.shape[0]) // 2, (width - inner.shape[1]) // 2
        image[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
    if radius := round(min(height, width) * how.blur / 100):
        image = _blur(_blur(image, radius, axis=0), radius, axis=1)
    return add_noise(image, how.noise, rng)


def add_noise(image: Pixels, noise: float, rng: np.random.Generator) -> Pixels:
    """Add uniform noise of amplitude `noise`, a fraction of full scale; return the same array if that rounds to 0."""
    if amplitude := round(noise * 255):
        drawn = rng.integers(-amplitude, amplitude + 1, image.shape, dtype=np.int16)
        image = np.clip(drawn + image, 0, 255).astype(np.uint8)
    return image


def crop_margin(length: int, crop: float) -> int:
    """Return the number of pixels to crop at each end of a side of `length` pixels; at least one pixel remains."""
    return min(round(length * crop / 2), (length - 1) // 2)


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """Resize an image of up to 2048 x 2048 pixels; each new pixel is the mean of the area that it covers."""
    return _transposed(_resize_rows(_transposed(_resize_rows(image, height)), width))


def _resize_rows(image: Pixels, new: int) -> Pixels:
    old = len(image)
    if new == old:
        return image
    # In units of 1/new of an old row, new row j covers [j * old, (j + 1) * old) and old row i covers
    # [i * new, (i + 1) * new). Each new row is the sum of old rows, weighted by the overlap.
    start = np.arange(new) * old
    first, last = start // new, (start + old - 1) // new
    total = np.zeros((new, *image.shape[1:]), np.uint32)
    for k in range(int((last - first).max()) + 1):
        row = first + k
        shared = np.clip(np.minimum((row + 1) * new, start + old) - np.maximum(row * new, start), 0, None)
        total += image[np.minimum(row, old - 1)] * shared.astype(np.uint32)[:, None, None]
    resized: Pixels = ((total + old // 2) // np.uint32(old)).astype(np.uint8)
    return resized


def _blur(image: Pixels, radius: int, axis: int) -> Pixels:
    """Blur along an axis with a triangular kernel that falls to 0 beyond `radius`; edges are replicated."""
    weight = (radius + 1) ** 2
    exact = np.uint16 if 256 * weight <= 2**16 else np.uint32  # the smaller type is faster
    edges = [(radius, radius) if each == axis else (0, 0) for each in range(3)]
    rows = np.moveaxis(np.pad(image, edges, mode="edge").astype(exact), axis, 0)
    count = image.shape[axis]
    total = rows[radius : radius + count] * exact(radius + 1) + exact(weight // 2)
    for near in range(radius):
        far = 2 * radius - near
        total += (rows[near : near + count] + rows[far : far + count]) * exact(near + 1)
    blurred: Pixels = np.moveaxis(total // exact(weight), 0, axis).astype(np.uint8)
    return blurred


def _transposed(image: Pixels) -> Pixels:
    """Transpose rows and columns in memory, so that operations on rows are fast."""
    rows, columns, channels = image.shape
    points = image.view(f"V{channels}")[..., 0]  # moving whole pixels is faster than moving channels
    return np.ascontiguousarray(points.T).view(np.uint8).reshape(columns, rows, channels)


def _change_contrast(image: Pixels, contrast: float) -> Pixels:
    levels = np.arange(256) - 128
    changed = np.clip(128 + (levels * round(contrast * 1024) + 512) // 1024, 0, 255).astype(np.uint8)
    return changed.take(image)


def _scribble(image: Pixels, strokes: int, rng: np.random.Generator) -> Pixels:
    """Return a copy with thin, straight strokes in pale colours, like the clutter on board tiles."""
    height, width, _ = image.shape
    image, colours = image.copy(), list(COLOURS.values())
    for _ in range(strokes):
        x0, y0, x1, y1 = (int(v) for v in rng.integers(0, 1001, 4))
        start, end = ((x * width * UNIT // 1000, y * height * UNIT // 1000) for x, y in ((x0, y0), (x1, y1)))
        tint = blend(colours[int(rng.integers(len(colours)))], THEMES["light"].empty, 0.35)
        _stroke(image, start, end, max(UNIT, min(height, width) * UNIT // 160), tint)
    return image


def _stroke(image: Pixels, start: Point, end: Point, thickness: int, colour: Colour) -> None:
    """Draw a straight anti-aliased stroke in place; coordinates and thickness are in 1/`UNIT` pixels."""
    (x0, y0), (x1, y1) = start, end
    if abs(y1 - y0) > abs(x1 - x0):  # step along the longer axis
        image, (x0, y0), (x1, y1) = image.swapaxes(0, 1), (y0, x0), (y1, x1)
    if x1 < x0:
        (x0, y0), (x1, y1) = (x1, y1), (x0, y0)
    run, rise = max(1, x1 - x0), y1 - y0
    half = thickness * math.isqrt(run * run + rise * rise) // (2 * run)
    column = np.arange(x0 // UNIT, min(x1 // UNIT + 1, image.shape[1]))
    centre = y0 + (column * UNIT + UNIT // 2 - x0) * rise // run - UNIT // 2
    reach = half // UNIT + 1
    row = (centre // UNIT)[:, None] + np.arange(-reach, reach + 2)
    cover = np.clip(half + UNIT // 2 - np.abs(row * UNIT - centre[:, None]), 0, UNIT)
    across, along = np.nonzero((cover > 0) & (row >= 0) & (row < image.shape[0]))[::-1]
    index, share = (row[along, across], column[along]), cover[along, across, None]
    image[index] = (image[index] * (UNIT - share) + np.array(colour) * share + UNIT // 2) // UNIT
