"""Pictures that rows hold or name: their bytes, decoded with limits, and fitted into a square without distortion."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from vlmgym.sandbox.datasets.rows import BadRow, shown

MARGIN = (128, 128, 128)
"""Colour beside a picture that is not square."""


def picture_bytes(value: Any, folder: Path | None, urls: bool = False) -> bytes:
    """The encoded picture (JPEG, PNG ...) that a row's value holds or names.

    Args:
        value: A path relative to `folder`, or the bytes.
        folder: Where paths are relative to.
        urls: Whether a picture may be loaded from the network.

    Raises:
        BadRow: The value is nothing of this, or leads nowhere or out of the folder.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and folder is not None:
        try:
            return (folder / value).read_bytes()
        except OSError as error:
            raise BadRow(f"the picture {shown(value)} cannot be read: {error.strerror}") from None
    raise BadRow(f"there is no picture but {shown(value)}")


def decode(blob: bytes) -> Image.Image:
    """A picture in RGB.

    Raises:
        BadRow: It is no picture, or damaged, or too large.
    """
    try:
        return ImageOps.exif_transpose(Image.open(io.BytesIO(blob))).convert("RGB")
    except OSError as error:
        raise BadRow(f"the picture cannot be decoded: {error}") from None


def letterbox(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """A picture as large as fits into a square, in its middle, with a grey margin: uint8 (size, size, 3)."""
    return np.asarray(ImageOps.pad(image, (size, size), Image.Resampling.LANCZOS, color=MARGIN))
