"""Several images as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def side_by_side(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Images as one, from left to right, black below those that are not as high as the others; always a copy.

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
