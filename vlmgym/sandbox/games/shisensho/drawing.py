"""Drawing of tiles with images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.rendering.canvas import Canvas
from vlmgym.sandbox.rendering.palette import THEMES, ThemeName

IMAGE_SHARE = 0.86
"""Side of the image relative to the tile."""


class ImageTile(NamedTuple):
    """A tile with an image: its class, and the row of the image in the data."""

    label: str
    row: int

    def __repr__(self) -> str:
        # The painter seeds a sprite's noise with the repr, so changing it changes published images.
        return f"PictureTile(label={self.label!r}, row={self.row})"


def image_side(cell: int) -> int:
    """Return the side of the image on a tile in pixels, given the side of the cell."""
    return round(cell * IMAGE_SHARE)


def paint_image(canvas: Canvas, image: NDArray[np.uint8], angle: float, *, theme: ThemeName) -> None:
    """Paint a tile onto a square canvas that shows an empty cell.

    Args:
        canvas: The cell.
        image: uint8 RGB of shape (side, side, 3), see `image_side`.
        angle: Rotation of the image, not the tile, in degrees counter-clockwise.
        theme: Theme of the board.
    """
    side = canvas.width
    canvas.rectangle(0, 0, side, side, THEMES[theme].tile, radius=side * 0.09)
    canvas.image(image, side / 2, side / 2, angle)
