"""Handwritten digits: 1,797 images of 8 x 8 pixels, about 180 per digit, by 13 writers.

They are the test set of Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, 1998; UCI, CC BY 4.0), which
scikit-learn includes.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from vlmgym.sandbox.datasets.extra import library
from vlmgym.sandbox.datasets.rows import Row
from vlmgym.sandbox.datasets.table import Table

DARKEST = 16
"""Value of full ink; 0 is paper."""
MARGIN = 1
"""Pixels of paper added on each side, because the ink reaches the edges."""


class Digits(Table):
    """The columns are `image`, dark ink on white as PNG, and `label`, `0` to `9`."""

    columns = ("image", "label")
    folder = None

    def __init__(self) -> None:
        """Load the digits, without network access.

        Raises:
            UsageError: scikit-learn is not installed.
        """
        digits = library("sklearn.datasets", "tiles=digits", "tasks").load_digits()
        ink = np.pad(digits.images.astype(np.int64), ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
        self._images = (255 - ink * 255 // DARKEST).astype(np.uint8)
        self._labels = digits.target

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Row:
        buffer = io.BytesIO()
        Image.fromarray(self._images[index]).save(buffer, "PNG")
        return {"image": buffer.getvalue(), "label": str(self._labels[index])}
