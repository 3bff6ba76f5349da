"""Relief: light from the upper left shows what stands out from its ground by bright edges and soft shadows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import Colour
from vlmgym.sandbox.drawing.degrade import Pixels, blur

STEP = 120
"""Height of a figure above its ground; bright edges and shadows grow with it."""
ALIKE = 12
"""Largest difference of a channel at which two colours count as the same."""
COARSE = 160
"""Maximum side of the image in which the light of a scene is computed."""


def raise_figures(image: Pixels, grounds: Iterable[Colour], relief: float, joined: bool) -> Pixels:
    """Return a square image on which all but its grounds is raised, and what is drawn on that is raised above it.

    Args:
        image: The image. It is not modified.
        grounds: Colours that are not raised.
        relief: Strength of light and shadow, 0 to 1.
        joined: True if the image continues beyond its edges; otherwise they are edges of what is raised.
    """
    packed, counts = np.unique(image @ np.array([1 << 16, 1 << 8, 1]), return_counts=True)
    surface = int(packed[counts.argmax()])  # the most common colour, such as that of a tile
    figures = np.logical_and.reduce([_differs(image, ground) for ground in grounds])
    heights = figures * (STEP + STEP * _differs(image, (surface >> 16, surface >> 8 & 255, surface & 255)))
    below, above, shadow = _softened(heights.astype(np.uint8), max(1, round(len(image) / 28)), joined)
    strength = round(256 * relief)
    light = np.where(heights >= np.maximum(below, above), (below - above) * strength >> 9, 0)
    dark = np.clip(shadow - heights, 0, STEP) * strength >> 9
    return np.asarray(np.clip((image * (256 - dark[..., None]) >> 8) + light[..., None], 0, 255), np.uint8)


def light_scene(image: Pixels, ground: Colour) -> None:
    """Light the objects of a square image, in place, as if they were rounded; they cast shadows on their ground."""
    import cv2

    size = len(image)
    side = min(size, COARSE)
    is_ground = cv2.inRange(image, ground, ground)
    heights = np.asarray(255 - cv2.resize(is_ground, (side, side), interpolation=cv2.INTER_AREA), np.uint8)
    below, above, shadow = _softened(heights, side // 50, joined=True)
    slope = below - above
    objects, light = (
        cv2.resize(plane.astype(np.uint8), (size, size), interpolation=cv2.INTER_LINEAR_EXACT)
        for plane in (np.clip(128 + np.where(slope > 0, slope // 6, slope // 4), 0, 255), 128 - shadow * 44 // 255)
    )
    cv2.copyTo(light, is_ground, objects)
    cv2.multiply(image, cv2.merge([objects] * 3), dst=image, scale=1 / 128)


def _softened(heights: NDArray[np.uint8], reach: int, joined: bool) -> tuple[NDArray[np.int32], ...]:
    """Return softened heights to the lower right of each pixel, to its upper left, and twice as far to its upper left.

    The difference of the first two is the slope that faces the light; the third is the height that casts a shadow.
    """
    import cv2

    margin = 4 * reach
    border = cv2.BORDER_REPLICATE if joined else cv2.BORDER_CONSTANT
    framed = cv2.copyMakeBorder(heights, margin, margin, margin, margin, border)
    soft = blur(np.asarray(framed, np.uint8), 2 * reach).astype(np.int32)
    return tuple(
        soft[tuple(slice(margin - shift, margin - shift + side) for side in heights.shape)]
        for shift in (-reach, reach, 2 * reach)
    )


def _differs(image: Pixels, colour: Colour) -> NDArray[np.bool_]:
    return np.asarray(np.abs(image.astype(np.int16) - np.array(colour, np.int16)).max(axis=2) > ALIKE)
