"""Degrade images with OpenCV: crop, clutter, contrast, scale, shade, blur and noise.

The same image and seed give the same pixels, whichever vector instructions the processor has: randomness comes from
NumPy's generator, and blurring sums whole numbers, which floats represent exactly. OpenCV is imported on use.
`canvas.py` draws with pygame instead, because OpenCV's circles are lumpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import COLOURS, THEMES, Colour, blend

if TYPE_CHECKING:
    from vlmgym.sandbox.core.config import DegradedConfig

Pixels = NDArray[np.uint8]
"""An RGB image, uint8, shape (height, width, 3)."""

FRAME: Colour = THEMES["light"].board
"""Colour around a shrunk image."""
FRACTION_BITS = 8
"""Ends of strokes are in units of 1/256 pixel."""
SHADOWS, SOFT = 6, 64
"""Size of the grid of shadows from side to side, and side of the image in which they are softened."""


def degrade(image: Pixels, effects: DegradedConfig, seed: int, index: int = 0) -> Pixels:
    """Crop, clutter, change contrast, scale, shade, blur and add noise, in this order.

    Args:
        image: The image. It is not modified; if no effect applies, it is returned without a copy.
        effects: Their strengths.
        seed: Seed for strokes, shadows and noise.
        index: Index of the image in its question, which gives each image its own strokes, shadows and noise.
    """
    height, width, _ = image.shape
    rng = np.random.default_rng([seed, index])
    if effects.crop:
        rows, columns = crop_margin(height, effects.crop), crop_margin(width, effects.crop)
        image = resize(image[rows : height - rows, columns : width - columns], height, width)
    if effects.clutter:
        image = _scribble(image, effects.clutter, rng)
    if effects.contrast != 1:
        image = _change_contrast(image, effects.contrast)
    if effects.scale != 1:
        image = _shrink(image, effects.scale)
    if effects.shade:
        image = _shade(image, effects.shade, rng)
    if radius := round(min(height, width) * effects.blur / 100):
        image = blur(image, radius)
    return add_noise(image, effects.noise, rng)


def add_noise(image: Pixels, noise: float, rng: np.random.Generator) -> Pixels:
    """Add uniform noise of amplitude `noise`, a fraction of full scale; return the same array if that rounds to 0."""
    if not (amplitude := round(noise * 255)):
        return image
    import cv2

    offsets = rng.integers(-amplitude, amplitude + 1, image.shape, dtype=np.int16)
    return np.asarray(cv2.add(image, offsets, dtype=cv2.CV_8U), np.uint8)


def crop_margin(length: int, crop: float) -> int:
    """Return the number of pixels to crop at each end of a side of `length` pixels; at least one pixel remains."""
    return min(round(length * crop / 2), (length - 1) // 2)


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """Resize an image; each new pixel is the mean of the area that it covers."""
    import cv2

    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def _shrink(image: Pixels, scale: float) -> Pixels:
    """Shrink an image and centre it in a frame of the original size."""
    import cv2

    height, width, _ = image.shape
    inner = resize(image, max(1, round(height * scale)), max(1, round(width * scale)))
    rows, columns = height - inner.shape[0], width - inner.shape[1]
    margins = (rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    return np.asarray(cv2.copyMakeBorder(inner, *margins, cv2.BORDER_CONSTANT, value=FRAME), np.uint8)


def blur(image: Pixels, radius: int) -> Pixels:
    """Blur with a triangular kernel that falls to 0 beyond `radius`; edges are replicated."""
    import cv2

    kernel = (radius + 1 - np.abs(np.arange(-radius, radius + 1))).astype(np.float32)
    weight = (radius + 1) ** 4
    depth = cv2.CV_32F if 255 * weight < 2**24 else cv2.CV_64F  # exact for the largest sum
    total = cv2.sepFilter2D(image, depth, kernel, kernel, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.convertScaleAbs(total, alpha=1 / weight), np.uint8)


def _shade(image: Pixels, shade: float, rng: np.random.Generator) -> Pixels:
    """Darken a part of the image by up to `shade`, as in the shadow of leaves."""
    import cv2

    height, width, _ = image.shape
    grid = rng.integers(0, 256, (SHADOWS, SHADOWS), dtype=np.uint8)
    clouds = blur(np.asarray(cv2.resize(grid, (SOFT, SOFT), interpolation=cv2.INTER_LINEAR_EXACT), np.uint8), SOFT // 8)
    shadows = np.clip((clouds.astype(np.int32) - 110) * 5, 0, 255)
    light = np.asarray(255 - shadows * round(256 * shade) // 256, np.uint8)
    light = np.asarray(cv2.resize(light, (width, height), interpolation=cv2.INTER_LINEAR_EXACT), np.uint8)
    return np.asarray(cv2.multiply(image, cv2.merge([light] * 3), scale=1 / 255), np.uint8)


def _change_contrast(image: Pixels, contrast: float) -> Pixels:
    import cv2

    levels = np.arange(256) - 128
    changed = np.clip(128 + (levels * round(contrast * 1024) + 512) // 1024, 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(image, changed), np.uint8)


def _scribble(image: Pixels, strokes: int, rng: np.random.Generator) -> Pixels:
    """Return a copy with thin, straight strokes in pale colours, like the clutter on board tiles."""
    import cv2

    height, width, _ = image.shape
    image, colours = image.copy(), list(COLOURS.values())
    thickness = max(1, min(height, width) // 220)  # anti-aliasing adds more than a pixel
    for _ in range(strokes):
        x0, y0, x1, y1 = (int(v) for v in rng.integers(0, 1001, 4))
        start, end = (
            (x * (width << FRACTION_BITS) // 1000, y * (height << FRACTION_BITS) // 1000)
            for x, y in ((x0, y0), (x1, y1))
        )
        tint = blend(colours[int(rng.integers(len(colours)))], THEMES["light"].empty, 0.35)
        cv2.line(image, start, end, tint, thickness, cv2.LINE_AA, FRACTION_BITS)
    return image
