"""Images of rows: load their bytes, decode them within limits, and fit them into a square without distortion."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from vlmgym.errors import first_line, importing, missing_extra, short_repr, truncate
from vlmgym.sandbox.data.rows import BadRow, is_empty

MAX_FILE_BYTES = 1 << 26
MAX_URL_BYTES = 1 << 25
URL_SECONDS = 20.0
BUCKETS = {"s3": "s3fs", "gs": "gcsfs"}
"""Packages that fsspec needs to read objects, keyed by URL scheme."""
URLS = ("http", "https", *BUCKETS, "file")
CHUNK = 1 << 20
MAX_PIXELS = 64_000_000
"""Maximum number of pixels, checked before decoding. Pillow itself warns above 89 and fails above 179 million."""
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""Accepted image formats. Formats whose decoders run other programs, such as EPS, are excluded."""
BITS = (8, 10, 12, 14, 16)
MARGIN = (128, 128, 128)
"""Colour of the margin that makes an image square."""
_CORRUPT = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError, struct.error, zlib.error,
)  # fmt: skip
"""Exceptions of decoders for corrupt files."""


def image_bytes(value: Any, folder: Path | None, urls: bool = False) -> bytes:
    """Load the encoded image that a row contains or refers to.

    Accepts bytes, `{"bytes": ..., "path": ...}` as in `datasets`, base64 `data:` URLs, and paths inside `folder`. With
    `urls`, also accepts http, https, s3 and gs URLs, and file URLs inside `folder`.

    Raises:
        BadRow: The value has another form, or the image is missing, too large or not allowed.
        UsageError: A package is missing.
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
    if scheme not in URLS:
        return _from_file(value, folder)
    if not urls:
        raise BadRow(f"the image is at {short_repr(value)}, and URLs are loaded only with urls=true")
    if scheme == "file":
        parts = urlsplit(value)
        if parts.netloc.lower() not in ("", "localhost"):
            raise BadRow(f"{short_repr(value)} is not a file on this machine")
        return _from_file(unquote(parts.path), folder)
    if "::" in value:  # fsspec would chain file systems, such as local files
        raise BadRow(f"{short_repr(value)} contains '::'")
    content = read_url(value, MAX_URL_BYTES, URL_SECONDS)
    if len(content) > MAX_URL_BYTES:
        raise BadRow(f"{short_repr(value)} is larger than {MAX_URL_BYTES >> 20} MB")
    return content


def read_url(url: str, max_bytes: int, seconds: float) -> bytes:
    """Read a file at any URL that fsspec can open; of a file larger than `max_bytes`, only the beginning.

    `seconds` limits the time for http and https.

    Raises:
        BadRow: The file cannot be loaded.
        UsageError: A package is missing.
    """
    with importing(f"loading {short_repr(url)}", "data"):
        import fsspec
        from aiohttp import ClientTimeout
    scheme, content = url.partition(":")[0].lower(), bytearray()
    options: dict[str, Any] = {}
    if scheme in ("http", "https"):
        options = {"block_size": 0, "client_kwargs": {"timeout": ClientTimeout(total=seconds)}}  # 0: stream
    try:
        with fsspec.open(url, "rb", **options) as file:
            while len(content) <= max_bytes and (chunk := file.read(CHUNK)):
                content += chunk
    except ImportError:
        raise missing_extra(f"loading {short_repr(url)}", BUCKETS.get(scheme, scheme), "cloud") from None
    except Exception as error:  # each backend raises its own exceptions
        raise BadRow(f"{short_repr(url)} cannot be loaded: {truncate(first_line(error), 200)}") from None
    return bytes(content)


def _from_data_url(value: str) -> bytes:
    head, comma, body = value.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise BadRow(f"{short_repr(value)} is not a base64 data URL")
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise BadRow(f"{short_repr(value)} is not valid base64: {error}") from None


def _from_file(value: str, folder: Path | None) -> bytes:
    if folder is None:
        raise BadRow(f"the image is a path, {short_repr(value)}, but the data has no folder")
    try:
        path = (folder / value).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise BadRow(f"the image {short_repr(value)} is outside the folder {folder}")
        if not path.is_file():
            raise BadRow(f"there is no image {short_repr(value)} in {folder}")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadRow(f"the image {short_repr(value)} is larger than {MAX_FILE_BYTES >> 20} MB")
        return path.read_bytes()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a symlink loop
        raise BadRow(f"the image {short_repr(value)} cannot be read: {error}") from None


def decode(encoded: bytes) -> Image.Image:
    """Decode the first frame of an image to RGB; raise `BadRow` if it is corrupt, too large or in no accepted format.

    EXIF orientation is applied, transparent pixels are blended with white, and 10 to 16 bits per sample become 8: of
    greyscale images by `_to_8_bits`, of colours the upper 8.
    """
    if not encoded:
        raise BadRow("the image is empty")
    try:
        image: Image.Image = Image.open(io.BytesIO(encoded), formats=_formats())
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise BadRow(f"the image has {width} x {height} pixels, more than {MAX_PIXELS}")
        image = ImageOps.exif_transpose(image)
        if image.mode[0] in "IF":
            image = Image.fromarray(_to_8_bits(np.asarray(image), image.mode))
        elif image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return image.convert("RGB")
    except Image.DecompressionBombError:
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


def _to_8_bits(samples: NDArray[Any], mode: str) -> NDArray[np.uint8]:
    """Scale samples of 8 to 16 bits, stored in more, to 8 bits.

    The brightest sample tells the number of bits: cameras and scanners store 10, 12 or 14 bits in 16.
    """
    bits = next((bits for bits in BITS if samples.max(initial=0) < 1 << bits), 0)
    if samples.dtype.kind == "f" or samples.min(initial=0) < 0 or not bits:
        values = "" if not samples.size else f" with values from {samples.min():g} to {samples.max():g}"
        raise BadRow(f"the image must have integer samples of 8 to 16 bits, from 0 to 65535, got mode {mode}{values}")
    return (samples.astype(np.int64) * 255 // ((1 << bits) - 1)).astype(np.uint8)


def letterbox(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Scale an image to fit a square and centre it on grey; returns uint8 of shape (size, size, 3)."""
    return np.array(ImageOps.pad(image, (size, size), Image.Resampling.LANCZOS, color=MARGIN))
