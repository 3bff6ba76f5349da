"""PNG, WebP and JPEG of board pictures: what libraries need for it, and what vlmgym uses.

pip install -e .[bench] && python benchmarks/encoding.py --json encoding.json

Pictures: four positions of each game, at perception 3 (flat colours) and 5 (noise). Every file is decoded again and
compared with its picture. The contestants take turns in rounds. The same is a part of `throughput.py`.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
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

from vlmgym.errors import UsageError
from vlmgym.evaluation.files import check_own_file, write_own_json
from vlmgym.measuring import Rates, Turn, measure, repeat
from vlmgym.options import parse_options, reporting_errors
from vlmgym.sandbox.drawing.encode import encode_jpeg, encode_png
from vlmgym.sandbox.registry import make_game

Picture = NDArray[np.uint8]
Encode = Callable[[Picture], bytes]

GAMES = ("2048", "shisensho", "swap")
PERCEPTION = {3: "flat colours", 5: "noise"}
POSITIONS = 4
MOVES_BETWEEN = 10
MOST_COLOURS = 256


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure and print a table for each kind of picture."""

    size: int = 640
    """Side of the pictures."""
    rounds: int = 5
    """Turns of each contestant."""
    seconds: float = 0.3
    """Length of a turn; at least all pictures are encoded once."""
    json: Path | None = None
    """Write all numbers to this file."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.seconds <= 0:
            raise UsageError("rounds and seconds are more than 0")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A contestant's rate in pictures a second, mean size of a file in bytes, and whether all pixels came back."""

    rates: Rates
    size: float
    lossless: bool


# Contestants ---------------------------------------------------------------------------------------------------------


def with_pillow(format: str, picture: Picture, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format, **options)
    return file.getvalue()


def palette_with_pillow(picture: Picture, level: int) -> bytes:
    """Indices into a palette, if there are few enough colours; found where neighbours differ, which is fast."""
    red, green, blue = (picture[..., i].ravel().astype(np.uint32) for i in range(3))
    codes = red << 16 | green << 8 | blue
    colours = np.unique(np.append(codes[1:][codes[1:] != codes[:-1]], codes[0]))
    if len(colours) > MOST_COLOURS:
        return with_pillow("PNG", picture, compress_level=level)
    indices = np.searchsorted(colours, codes).astype(np.uint8)
    image = Image.frombytes("P", picture.shape[1::-1], indices.tobytes())
    image.putpalette(np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8).tobytes())
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=level)
    return file.getvalue()


def with_pygame(name: str, picture: Picture) -> bytes:
    height, width, _ = picture.shape
    file = io.BytesIO()
    pygame.image.save(pygame.image.frombuffer(picture.tobytes(), (width, height), "RGB"), file, name)
    return file.getvalue()


def with_opencv(name: str, picture: Picture, *options: int) -> bytes:
    return cv2.imencode(name, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), options)[1].tobytes()


def with_av(picture: Picture) -> bytes:
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width, _ = picture.shape
    codec.pix_fmt, codec.time_base = "rgb24", Fraction(1)
    packets = [*codec.encode(av.VideoFrame.from_ndarray(picture, "rgb24")), *codec.encode(None)]
    return b"".join(map(bytes, packets))


def with_vips(picture: Picture, level: int) -> bytes:
    height, width, _ = picture.shape
    image = pyvips.Image.new_from_memory(picture.tobytes(), width, height, 3, "uchar")
    file: bytes = image.pngsave_buffer(compression=level)
    return file


def unfiltered(compress: Callable[[memoryview], bytes], picture: Picture) -> bytes:
    """A PNG file without filters around anyone's deflate, as `encode_png` writes it."""
    height, width, _ = picture.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = picture.reshape(height, -1)
    file = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    for name, data in ((b"IHDR", header), (b"IDAT", compress(lines.data)), (b"IEND", b"")):
        file += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return file


CONTESTANTS: dict[str, Encode] = {
    "vlmgym encode_png": encode_png,
    "Pillow, level 1": partial(with_pillow, "PNG", compress_level=1),
    "Pillow, level 6 (default)": partial(with_pillow, "PNG"),
    "Pillow, palette, level 1": partial(palette_with_pillow, level=1),
    "Pillow, palette, level 6": partial(palette_with_pillow, level=6),
    "pygame": partial(with_pygame, "board.png"),
    "PyAV": with_av,
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
    "vlmgym encode_jpeg, 90": encode_jpeg,
    "Pillow JPEG 75, 4:2:0": partial(with_pillow, "JPEG", quality=75),
    "Pillow JPEG 90, 4:2:0": partial(with_pillow, "JPEG", quality=90),
    "OpenCV JPEG 90, 4:2:0": lambda p: with_opencv(".jpg", p, cv2.IMWRITE_JPEG_QUALITY, 90),
}


# Measuring -----------------------------------------------------------------------------------------------------------


def positions(perception: int, size: int) -> list[Picture]:
    """Pictures of all games, after 0, 10, 20 and 30 random legal moves."""
    pictures = []
    for name in GAMES:
        game = make_game(name, perception, size=size)
        for seed in range(POSITIONS):
            rng = np.random.default_rng(seed)
            state = game.start(rng)
            for _ in range(seed * MOVES_BETWEEN):
                if legal := game.legal_actions(state):
                    state = game.step(state, legal[int(rng.integers(len(legal)))], rng).state
            pictures += game.images(state)
    return pictures


def encoding(encode: Encode, pictures: list[Picture]) -> Turn:
    def all_pictures() -> int:
        for picture in pictures:
            encode(picture)
        return len(pictures)

    return repeat(all_pictures)


def is_kept(file: bytes, picture: Picture) -> bool:
    with Image.open(io.BytesIO(file)) as image:
        return np.array_equal(np.asarray(image.convert("RGB")), picture)


def measure_encoders(pictures: list[Picture], rounds: int, seconds: float, what: str) -> dict[str, Encoded]:
    files = {name: [encode(picture) for picture in pictures] for name, encode in CONTESTANTS.items()}
    turns = {name: encoding(encode, pictures) for name, encode in CONTESTANTS.items()}
    rates = measure(turns, rounds, seconds, what)
    return {
        name: Encoded(rates[name], sum(map(len, encoded)) / len(encoded), all(map(is_kept, encoded, pictures)))
        for name, encoded in files.items()
    }


def measure_encoding(size: int, rounds: int, seconds: float) -> dict[str, dict[str, Encoded]]:
    """All contestants, by the kind of picture; also a part of `throughput.py`."""
    cv2.setNumThreads(1)
    return {
        f"boards at perception {perception} ({kind}), {size} x {size}": measure_encoders(
            positions(perception, size), rounds, seconds, kind
        )
        for perception, kind in PERCEPTION.items()
    }


def encoders_table(found: dict[str, Encoded], title: str) -> Table:
    table = Table("contestant", "pictures/s: median", "slowest", "fastest", "KB a file", "every pixel", title=title)
    for name, encoded in sorted(found.items(), key=lambda item: (not item[1].lossless, -item[1].rates.median)):
        rates = encoded.rates
        numbers = (f"{value:,.0f}" for value in (rates.median, rates.slowest, rates.fastest))
        table.add_row(name, *numbers, f"{encoded.size / 1e3:.1f}", "kept" if encoded.lossless else "no")
    return table


def numbers_of(found: dict[str, Encoded]) -> dict[str, Any]:
    """For a JSON file."""
    return {
        name: {"pictures/s": encoded.rates.rounds, "bytes": encoded.size, "lossless": encoded.lossless}
        for name, encoded in found.items()
    }


def main() -> None:
    with reporting_errors():
        options = parse_options(Options, None, "benchmarks/encoding.py")
        if options.json is not None:
            check_own_file(options.json)
        console = Console(width=None if sys.stdout.isatty() else 120)
        kinds = measure_encoding(options.size, options.rounds, options.seconds)
        for title, found in kinds.items():
            console.print(encoders_table(found, title))
        if options.json is not None:
            numbers = {title: numbers_of(found) for title, found in kinds.items()}
            write_own_json(options.json, numbers)


if __name__ == "__main__":
    main()
