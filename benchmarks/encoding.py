"""Measure speed and file size of PNG, WebP and JPEG encoders on board images.

pip install -e .[bench] && python -m benchmarks.encoding --json encoding.json

The images show four states per game at perception levels 3 (flat colours) and 5 (noise). Every file is decoded and
compared with its image. Encoders take turns in rounds. `throughput.py` runs this benchmark as one of its parts.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pygame
import pyvips
from isal import isal_zlib
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table
from zlib_ng import zlib_ng

from benchmarks.scripts import repeat
from vlmgym.cli.bench import Rates, Trial, measure
from vlmgym.errors import UsageError
from vlmgym.runs.files import check_own_file, write_own_json
from vlmgym.sandbox.core.game import pick
from vlmgym.sandbox.drawing.encode import encode_png
from vlmgym.sandbox.registry import make_game
from vlmgym.terminal import parse_options, reporting_errors

ImageArray = NDArray[np.uint8]
Encode = Callable[[ImageArray], bytes]

GAMES = ("2048", "shisensho", "swap")
PERCEPTION = {3: "flat colours", 5: "noise"}
STATES = 4
MOVES_BETWEEN = 10
MOST_COLOURS = 256


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure encoders and print a table for each kind of image."""

    size: int = 640
    """Image size in pixels."""
    rounds: int = 5
    """Trials per encoder."""
    seconds: float = 0.3
    """Minimum length of a trial in seconds. A trial encodes every image at least once."""
    json: Path | None = None
    """Write the results to this file."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.seconds <= 0:
            raise UsageError("rounds and seconds must be positive")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Results of an encoder: rates in images per second, mean file size in bytes, and whether it is lossless."""

    rates: Rates
    size: float
    lossless: bool


# Candidates ----------------------------------------------------------------------------------------------------------


def with_pillow(format: str, image: ImageArray, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, format, **options)
    return file.getvalue()


def palette_with_pillow(image: ImageArray, level: int) -> bytes:
    """Encode with a palette if the image has at most `MOST_COLOURS` colours, else as RGB.

    To find the colours faster, only pixels that differ from the previous one are compared.
    """
    red, green, blue = (image[..., i].ravel().astype(np.uint32) for i in range(3))
    codes = red << 16 | green << 8 | blue
    colours = np.unique(np.append(codes[1:][codes[1:] != codes[:-1]], codes[0]))
    if len(colours) > MOST_COLOURS:
        return with_pillow("PNG", image, compress_level=level)
    indices = np.searchsorted(colours, codes).astype(np.uint8)
    indexed = Image.frombytes("P", image.shape[1::-1], indices.tobytes())
    indexed.putpalette(np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8).tobytes())
    file = io.BytesIO()
    indexed.save(file, "PNG", compress_level=level)
    return file.getvalue()


def with_pygame(name: str, image: ImageArray) -> bytes:
    height, width, _ = image.shape
    file = io.BytesIO()
    pygame.image.save(pygame.image.frombuffer(image.tobytes(), (width, height), "RGB"), file, name)
    return file.getvalue()


def with_opencv(name: str, image: ImageArray, *options: int) -> bytes:
    return cv2.imencode(name, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)[1].tobytes()


def with_vips(image: ImageArray, level: int) -> bytes:
    height, width, _ = image.shape
    picture = pyvips.Image.new_from_memory(image.tobytes(), width, height, 3, "uchar")
    file: bytes = picture.pngsave_buffer(compression=level)
    return file


def unfiltered(compress: Callable[[memoryview], bytes], image: ImageArray) -> bytes:
    """Encode an unfiltered PNG file like `encode_png`, compressed by `compress`."""
    height, width, _ = image.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = image.reshape(height, -1)
    file = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    for name, data in ((b"IHDR", header), (b"IDAT", compress(lines.data)), (b"IEND", b"")):
        file += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return file


CANDIDATES: dict[str, Encode] = {
    "vlmgym encode_png": encode_png,
    "Pillow, level 1": partial(with_pillow, "PNG", compress_level=1),
    "Pillow, level 6 (default)": partial(with_pillow, "PNG"),
    "Pillow, palette, level 1": partial(palette_with_pillow, level=1),
    "Pillow, palette, level 6": partial(palette_with_pillow, level=6),
    "pygame": partial(with_pygame, "board.png"),
    "OpenCV, level 1": lambda p: with_opencv(".png", p, cv2.IMWRITE_PNG_COMPRESSION, 1),
    "OpenCV, level 1, unfiltered": lambda p: with_opencv(
        ".png", p, cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE
    ),
    "libvips, level 1": partial(with_vips, level=1),
    "unfiltered, zlib 1": partial(unfiltered, lambda lines: zlib.compress(lines, 1)),
    "unfiltered, zlib-ng 1": partial(unfiltered, lambda lines: zlib_ng.compress(lines, 1)),
    "unfiltered, ISA-L 0": partial(unfiltered, lambda lines: isal_zlib.compress(lines, 0)),
    "unfiltered, ISA-L 1": partial(unfiltered, lambda lines: isal_zlib.compress(lines, 1)),
    "unfiltered, ISA-L 3": partial(unfiltered, lambda lines: isal_zlib.compress(lines, 3)),
    "Pillow, lossless WebP, fastest": partial(with_pillow, "WEBP", lossless=True, quality=0, method=0),
    "Pillow JPEG 90, 4:4:4": partial(with_pillow, "JPEG", quality=90, subsampling="4:4:4"),
    "Pillow JPEG 75, 4:2:0": partial(with_pillow, "JPEG", quality=75),
    "Pillow JPEG 90, 4:2:0": partial(with_pillow, "JPEG", quality=90),
    "OpenCV JPEG 90, 4:2:0": lambda p: with_opencv(".jpg", p, cv2.IMWRITE_JPEG_QUALITY, 90),
}


# Measuring -----------------------------------------------------------------------------------------------------------


def images_of(perception: int, size: int) -> list[ImageArray]:
    """Draw each game after 0, 10, 20 and 30 random legal moves."""
    images = []
    for name in GAMES:
        game = make_game(name, perception, size=size)
        for seed in range(STATES):
            rng = np.random.default_rng(seed)
            state = game.start(rng)
            for _ in range(seed * MOVES_BETWEEN):
                if legal := game.legal_actions(state):
                    state = game.step(state, pick(rng, legal), rng).state
            images += game.images(state)
    return images


def encoding(encode: Encode, images: list[ImageArray]) -> Trial:
    def all_images() -> int:
        for image in images:
            encode(image)
        return len(images)

    return repeat(all_images)


def is_lossless(file: bytes, image: ImageArray) -> bool:
    with Image.open(io.BytesIO(file)) as decoded:
        return np.array_equal(np.asarray(decoded.convert("RGB")), image)


def measure_encoders(images: list[ImageArray], rounds: int, seconds: float, unit: str) -> dict[str, Encoded]:
    files = {name: [encode(image) for image in images] for name, encode in CANDIDATES.items()}
    turns = {name: encoding(encode, images) for name, encode in CANDIDATES.items()}
    rates = measure(turns, rounds, seconds, unit)
    return {
        name: Encoded(rates[name], sum(map(len, encoded)) / len(encoded), all(map(is_lossless, encoded, images)))
        for name, encoded in files.items()
    }


def measure_encoding(size: int, rounds: int, seconds: float) -> dict[str, dict[str, Encoded]]:
    """Measure all encoders; return their results by kind of image, then by name of the encoder."""
    cv2.setNumThreads(1)
    return {
        f"boards at perception {perception} ({kind}), {size} x {size}": measure_encoders(
            images_of(perception, size), rounds, seconds, kind
        )
        for perception, kind in PERCEPTION.items()
    }


def encoders_table(results: dict[str, Encoded], title: str) -> Table:
    table = Table("candidate", "images/s: median", "slowest", "fastest", "KB per file", "lossless", title=title)
    for name, encoded in sorted(results.items(), key=lambda item: (not item[1].lossless, -item[1].rates.median)):
        rates = encoded.rates
        numbers = (f"{value:,.0f}" for value in (rates.median, rates.slowest, rates.fastest))
        table.add_row(name, *numbers, f"{encoded.size / 1e3:.1f}", "yes" if encoded.lossless else "no")
    return table


def numbers_of(results: dict[str, Encoded]) -> dict[str, Any]:
    """Convert the results of encoders to plain data for JSON."""
    return {
        name: {"images/s": encoded.rates.rounds, "bytes": encoded.size, "lossless": encoded.lossless}
        for name, encoded in results.items()
    }


def main() -> None:
    with reporting_errors():
        options = parse_options(Options, None, "python -m benchmarks.encoding")
        if options.json is not None:
            check_own_file(options.json)
        console = Console(width=None if sys.stdout.isatty() else 120)
        kinds = measure_encoding(options.size, options.rounds, options.seconds)
        for title, results in kinds.items():
            console.print(encoders_table(results, title))
        if options.json is not None:
            numbers = {title: numbers_of(results) for title, results in kinds.items()}
            write_own_json(options.json, numbers)


if __name__ == "__main__":
    main()
