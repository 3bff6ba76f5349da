"""Pictures that rows hold or name: their bytes, decoded with limits, and fitted into a square without distortion."""

from __future__ import annotations

import base64
import binascii
import io
import struct
import warnings
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from vlmgym.sandbox.datasets.rows import BadRow, is_empty, shown
from vlmgym.sandbox.datasets.urls import SCHEMES, download

LARGEST_FILE = 1 << 26
"""Bytes of a picture's file."""
MOST_PIXELS = 64_000_000
"""Pixels of a picture; its size is looked at before it is decoded. Pillow by itself warns from 89 million on."""
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are decoded; not among them are those that start other programs, such as EPS."""
MARGIN = (128, 128, 128)
"""Colour beside a picture that is not square."""
WHITE = (255, 255, 255)
"""Colour behind a picture that is transparent."""

_DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    struct.error,
    zlib.error,
)
"""What Pillow's decoders raise for damaged files."""


# Bytes ----------------------------------------------------------------------------------------------------------------


def picture_bytes(value: Any, folder: Path | None, urls: bool = False) -> bytes:
    """The encoded picture (JPEG, PNG ...) that a row's value holds or names.

    Args:
        value: A path relative to `folder` (or absolute, but in it), the bytes, `{"bytes": ..., "path": ...}` as Hugging
            Face has it, a `data:` URL in base64, or an http or https address.
        folder: Where paths are relative to, and which they may not leave; None: there are no paths.
        urls: Whether addresses are loaded.

    Raises:
        BadRow: The value is nothing of this, or leads nowhere or out of the folder.
    """
    if isinstance(value, Mapping) and ("bytes" in value or "path" in value):
        value = value["path"] if value.get("bytes") is None else value["bytes"]
    if is_empty(value):
        raise BadRow("there is no picture")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise BadRow(f"there is no picture but {shown(value)}")
    scheme = value.partition(":")[0].lower()
    if scheme == "data":
        return _from_data_url(value)
    if scheme in SCHEMES:
        if not urls:
            raise BadRow(f"the picture is at {shown(value)}, and addresses are loaded only with urls=true")
        return download(value)
    return _from_file(value, folder)


def _from_data_url(value: str) -> bytes:
    head, comma, body = value.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise BadRow(f"{shown(value)} is not a data URL in base64")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRow(f"{shown(value)} is not base64: {error}") from None


def _from_file(value: str, folder: Path | None) -> bytes:
    if folder is None:
        raise BadRow(f"the picture is a path, {shown(value)}, but the data lie in no folder")
    try:
        root, path = folder.resolve(), (folder / value).resolve()
        if not path.is_relative_to(root):
            raise BadRow(f"the picture {shown(value)} is outside of the folder {folder}")
        if not path.is_file():
            raise BadRow(f"there is no picture {shown(value)} in {folder}")
        if path.stat().st_size > LARGEST_FILE:
            raise BadRow(f"the picture {shown(value)} is larger than {LARGEST_FILE >> 20} MB")
        return path.read_bytes()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a loop of links
        raise BadRow(f"the picture {shown(value)} cannot be read: {error}") from None


# Pixels ---------------------------------------------------------------------------------------------------------------


def decode(blob: bytes) -> Image.Image:
    """A picture in RGB: turned as its EXIF says, transparent parts over white, 16 bits a sample reduced to 8.

    Of several frames the first is taken.

    Raises:
        BadRow: It is no picture of a known format, damaged, cut off, or of too many pixels.
    """
    if not blob:
        raise BadRow("the picture is empty")
    try:
        image = _opened(blob)
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise BadRow(f"the picture has {width} x {height} pixels, more than {MOST_PIXELS}")
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.has_transparency_data:
            image = image.convert("RGBA")
            under = Image.new("RGBA", image.size, (*WHITE, 255))
            return Image.alpha_composite(under, image).convert("RGB")
        return (_eight_bits(image) if image.mode[0] in "IF" else image).convert("RGB")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadRow(f"the picture has more than {MOST_PIXELS} pixels") from None
    except UnidentifiedImageError:
        raise BadRow(f"the picture is of no known format: {', '.join(FORMATS)}") from None
    except _DAMAGED as error:
        raise BadRow(f"the picture is damaged: {error}") from None


def letterbox(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """A picture as large as fits into a square, in its middle, with a grey margin: uint8 (size, size, 3)."""
    return np.array(ImageOps.pad(image, (size, size), Image.Resampling.LANCZOS, color=MARGIN))


_opening = Lock()
"""Held while filters of warnings, which all threads share, are changed."""


def _opened(blob: bytes) -> Image.Image:
    """A picture that is not decoded yet; Pillow's warning of many pixels is an error."""
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(io.BytesIO(blob), formats=_formats())


@cache
def _formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this Pillow can decode."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _eight_bits(image: Image.Image) -> Image.Image:
    """A grey picture of integers up to 65535 as one of 8 bits, which Pillow by itself would cut off at 255."""
    samples = np.asarray(image)
    if samples.dtype.kind == "f" or samples.min() < 0 or samples.max() > 65535:
        raise BadRow(f"the picture's samples ({image.mode}) are not 8 or 16 bits")
    return Image.fromarray((samples // 257).astype(np.uint8))
