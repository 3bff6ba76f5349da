"""Join images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def side_by_side(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Join images from left to right into a new array, padding shorter ones with black at the bottom.

    Args:
        images: uint8 RGB of shapes (height, width, 3), at least one.
    """
    heights, widths = zip(*(image.shape[:2] for image in images))
    joined = np.zeros((max(heights), sum(widths), 3), np.uint8)
    left = 0
    for image, height, width in zip(images, heights, widths):
        joined[:height, left : left + width] = image
        left += width
    return joined
