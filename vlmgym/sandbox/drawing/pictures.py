"""Several pictures as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def side_by_side(pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Pictures as one, from left to right, black below those that are not as high as the others; always a copy.

    Args:
        pictures: uint8 RGB of shapes (height, width, 3), at least one.
    """
    heights, widths = zip(*(picture.shape[:2] for picture in pictures))
    joined = np.zeros((max(heights), sum(widths), 3), np.uint8)
    left = 0
    for picture, height, width in zip(pictures, heights, widths):
        joined[:height, left : left + width] = picture
        left += width
    return joined
