"""Join images and encode them as PNG files for APIs and records.

`benchmarks/encoding.py` compares this with image libraries; docs/log.md has the results.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from vlmgym.errors import UsageError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_EIGHT_BIT_RGB = (8, 2, 0, 0, 0)
"""Bit depth, colour type, compression method, filter method, no interlacing."""
_UNFILTERED = 0
_LEVEL = isal_zlib.ISAL_DEFAULT_COMPRESSION
"""Level 2 of 0 to 3. Level 0 cannot compress noise, 1 is no faster, and 3 is many times slower for the same size."""


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Encode a uint8 RGB image as PNG.

    Lines are not filtered, because PNG filters help neither with the flat, repeating areas of boards nor with noise.
    ISA-L compresses many times faster than the zlib used by image libraries.
    """
    _check(image)
    height, width, _ = image.shape
    lines = np.empty((height, 1 + 3 * width), np.uint8)
    lines[:, 0] = _UNFILTERED
    lines[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, *_EIGHT_BIT_RGB)
    data = isal_zlib.compress(lines, _LEVEL)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def side_by_side(images: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """Join images from left to right into a new array; shorter images are padded with black at the bottom."""
    heights, widths = zip(*(image.shape[:2] for image in images))
    joined = np.zeros((max(heights), sum(widths), 3), np.uint8)
    left = 0
    for image, height, width in zip(images, heights, widths):
        joined[:height, left : left + width] = image
        left += width
    return joined


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", isal_zlib.crc32(data, isal_zlib.crc32(name)))


def _check(image: NDArray[np.uint8]) -> None:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise UsageError(
            f"an image must be uint8 of shape (height, width, 3), got {image.dtype} of shape {image.shape}"
        )
