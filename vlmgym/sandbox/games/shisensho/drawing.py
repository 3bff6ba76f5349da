"""Tiles that show an image of a kind of thing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.rendering.canvas import Canvas
from vlmgym.sandbox.rendering.palette import THEMES, ThemeName

SHARE = 0.86
"""Side of the image over that of the tile."""


class ImageTile(NamedTuple):
    """A cell with an image: the name of its class, and which of the images."""

    label: str
    row: int

    def __repr__(self) -> str:
        # The painter seeds a sprite's noise with the repr, so changing it changes published images.
        return f"PictureTile(label={self.label!r}, row={self.row})"


def image_side(cell: int) -> int:
    """Side in pixels of the image in a cell whose side has so many."""
    return round(cell * SHARE)


def paint_image(canvas: Canvas, image: NDArray[np.uint8], angle: float, *, theme: ThemeName) -> None:
    """Paint a tile over the empty cell that a square canvas holds.

    Args:
        canvas: The cell.
        image: uint8 RGB of shape (side, side, 3) with the side that `image_side` names.
        angle: The image, not the tile, is turned by so many degrees counter-clockwise.
        theme: Decides the colour of the tile's face.
    """
    side = canvas.width
    canvas.rectangle(0, 0, side, side, THEMES[theme].tile, radius=side * 0.09)
    canvas.image(image, side / 2, side / 2, angle)
