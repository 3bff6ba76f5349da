"""Tiles that show a picture of a kind of thing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.drawing.palette import THEMES, ThemeName

SHARE = 0.86
"""Side of the picture over that of the tile."""


class PictureTile(NamedTuple):
    """A cell with a picture: the name of its class, and which of the pictures."""

    label: str
    row: int


def picture_side(cell: int) -> int:
    """Side in pixels of the picture in a cell whose side has so many."""
    return round(cell * SHARE)


def paint_picture(canvas: Canvas, picture: NDArray[np.uint8], angle: float, *, theme: ThemeName) -> None:
    """Paint a tile over the empty cell that a square canvas holds.

    Args:
        canvas: The cell.
        picture: uint8 RGB of shape (side, side, 3) with the side that `picture_side` names.
        angle: The picture, not the tile, is turned by so many degrees counter-clockwise.
        theme: Decides the colour of the tile's face.
    """
    side = canvas.width
    canvas.rectangle(0, 0, side, side, THEMES[theme].tile, radius=side * 0.09)
    canvas.picture(picture, side / 2, side / 2, angle)
