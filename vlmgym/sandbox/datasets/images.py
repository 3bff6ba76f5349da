"""Images of rows: load their bytes, decode them within limits, and fit them into a square without distortion."""

from __future__ import annotations

import base64
import io
import struct
import warnings
import zlib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from vlmgym.errors import short_repr
from vlmgym.sandbox.datasets.download import BUCKETS, SCHEMES, download, download_object
from vlmgym.sandbox.datasets.rows import BadRow, is_empty

MAX_FILE_BYTES = 1 << 26
MAX_PIXELS = 64_000_000
"""Maximum number of pixels, checked before decoding. Pillow itself warns above 89 and fails above 179 million."""
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""Accepted image formats. Formats whose decoders run other programs, such as EPS, are excluded."""
LOCALHOST = "localhost"
MARGIN = (128, 128, 128)
"""Colour of the margin that makes an image square."""
_CORRUPT = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError, struct.error, zlib.error)
"""Exceptions of Pillow's decoders for corrupt files."""
_warnings_lock = Lock()
"""Held while warning filters are changed, because all threads share them."""


def image_bytes(value: Any, folder: Path | None, hosts: Collection[str] | None = None) -> bytes:
    """Load the encoded image that a row contains or refers to.

    Accepts bytes, `{"bytes": ..., "path": ...}` as in `datasets`, base64 `data:` URLs, and paths inside `folder`.

    Other URLs are accepted only if `hosts` is not None: http and https (see `download`), s3 and gs (see
    `download_object`), and file URLs. File URLs must lie inside `folder`, unless `hosts` contains `localhost`.

    Raises:
        BadRow: The value has another form, or the image is missing, too large or not allowed.
    """
    if isinstance(value, Mapping) and ("bytes" in value or "path" in value):
        value = value["path"] if value.get("bytes") is None else value["bytes"]
    if is_empty(value):
        raise BadRow("the row has no image")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise BadRow(f"an image must be a path, bytes or a URL, got {short_repr(value)}")
    scheme = value.partition(":")[0].lower()
    if scheme == "data":
        return _from_data_url(value)
    if scheme not in (*SCHEMES, *BUCKETS, "file"):
        return _from_file(value, folder)
    if hosts is None:
        raise BadRow(f"the image is at {short_repr(value)}, and URLs are loaded only with urls=true")
    if scheme == "file":
        return _from_file_url(value, folder, hosts)
    return download(value, hosts) if scheme in SCHEMES else download_object(value, hosts)


def _from_data_url(value: str) -> bytes:
    head, comma, body = value.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise BadRow(f"{short_repr(value)} is not a base64 data URL")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise BadRow(f"{short_repr(value)} is not valid base64: {error}") from None


def _from_file_url(url: str, folder: Path | None, hosts: Collection[str]) -> bytes:
    parts = urlsplit(url)
    if parts.netloc.lower() not in ("", LOCALHOST):
        raise BadRow(f"{short_repr(url)} is not a file on this machine")
    path = unquote(parts.path)
    if LOCALHOST in hosts:
        return _from_file(path, Path("/"))
    return _from_file(path, folder, f": allow it with url_hosts={LOCALHOST}")


def _from_file(value: str, folder: Path | None, remedy: str = "") -> bytes:
    if folder is None:
        raise BadRow(f"the image is a path, {short_repr(value)}, but the data has no folder{remedy}")
    try:
        path = (folder / value).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise BadRow(f"the image {short_repr(value)} is outside the folder {folder}{remedy}")
        if not path.is_file():
            raise BadRow(f"there is no image {short_repr(value)} in {folder}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadRow(f"the image {short_repr(value)} is larger than {MAX_FILE_BYTES >> 20} MB")
        return path.read_bytes()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a symlink loop
        raise BadRow(f"the image {short_repr(value)} cannot be read: {error}") from None


def decode(encoded: bytes) -> Image.Image:
    """Decode the first frame of an image to RGB; raise `BadRow` if it is corrupt, too large or in no accepted format.

    EXIF orientation is applied, transparent pixels are blended with white, and 16 bits per sample become 8.
    """
    if not encoded:
        raise BadRow("the image is empty")
    try:
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image: Image.Image = Image.open(io.BytesIO(encoded), formats=_formats())
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise BadRow(f"the image has {width} x {height} pixels, more than {MAX_PIXELS}")
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        elif image.mode[0] in "IF":
            image = _to_8_bits(image)
        return image.convert("RGB")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise BadRow(f"the image has more than {MAX_PIXELS} pixels") from None
    except UnidentifiedImageError:
        raise BadRow(f"the image is in none of the formats {', '.join(FORMATS)}") from None
    except _CORRUPT as error:
        raise BadRow(f"the image is corrupt: {error}") from None


@cache
def _formats() -> tuple[str, ...]:
    """Return the subset of `FORMATS` that this build of Pillow supports."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit greyscale to 8 bits; Pillow would clip it at 255."""
    samples = np.asarray(image)
    if samples.dtype.kind == "f" or samples.min() < 0 or samples.max() > 65535:
        raise BadRow(f"the image must have 8 or 16 bits per sample, got mode {image.mode}")
    return Image.fromarray((samples // 257).astype(np.uint8))


def letterbox(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Scale an image to fit a square and centre it on grey; returns uint8 of shape (size, size, 3)."""
    return np.array(ImageOps.pad(image, (size, size), Image.Resampling.LANCZOS, color=MARGIN))
