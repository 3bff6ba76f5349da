"""Images for tiles that match by class: choosing images for a board and scaling them to tiles."""

from __future__ import annotations

import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, cycle
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmgym.errors import StateError, UsageError, importing
from vlmgym.sandbox.core.game import OWN_DATA
from vlmgym.sandbox.core.perception import read_grid
from vlmgym.sandbox.data.images import letterbox
from vlmgym.sandbox.data.rows import BadRow, SkippedRow, is_empty, text_of
from vlmgym.sandbox.data.tables import Source, Table, map_columns, open_table
from vlmgym.sandbox.drawing.canvas import THEMES, Canvas, ThemeName
from vlmgym.sandbox.drawing.shapes import EMPTY

ImageTiles = Literal["digits", "cifar10", "folder"]
Names = Sequence[Sequence[str]]
"""Class of the tile in each cell, rows x columns; `EMPTY` for none."""

SOURCES = {
    "digits": "Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, UCI, CC BY 4.0)",
    "cifar10": "CIFAR-10 (Krizhevsky, 2009)",
    "folder": OWN_DATA,
}
"""Source and licence of the images."""
KINDS = {"digits": "a handwritten digit", "cifar10": "a photograph", "folder": "an image of one of several kinds"}
"""What a tile shows, for prompts."""
COLUMNS = {"image": ("image", "img", "picture", "file_name"), "label": ("label", "class", "category", "fine_label")}
CIFAR10_ON_THE_HUB = "uoft-cs/cifar10"
IMAGE_SHARE = 0.86
"""Side of the image relative to the tile."""
CACHE_BYTES = 1 << 26
"""Maximum size of the scaled-image cache, in bytes."""


@dataclass(frozen=True, slots=True)
class DealtImages:
    """The images on the tiles of a board, including tiles already removed, and bad rows that were skipped."""

    rows: tuple[tuple[int, ...], ...]
    """Index of the image's row in the data, for each cell."""
    digest: str
    """Hash of the row indices and the images, 32 hexadecimal digits."""
    skipped: tuple[SkippedRow, ...] = ()


class TileImages:
    """Labelled images from any table with image and label columns; `classes` has the sorted class names."""

    def __init__(self, table: Table, data: str) -> None:
        """Group the rows of a table by class; `data` is the name of the table in errors."""
        self._data = data
        columns = map_columns(COLUMNS, frozenset(), (), table, data)
        self._source = Source(table, columns, ("image",))
        label_column = str(columns["label"])
        named: dict[str, list[int]] = defaultdict(list)
        unlabelled: list[int] = []
        for row, value in enumerate(table.values(label_column)):
            try:
                (unlabelled if is_empty(value) else named[text_of({"label": value}, "label")]).append(row)
            except BadRow as error:
                raise UsageError(f"row {row} of {data} has an invalid label: {error}") from None
        self._rows: dict[str, NDArray[np.int64]] = {label: np.array(rows) for label, rows in named.items()}
        self._unlabelled = _report(unlabelled)
        self.classes = tuple(sorted(self._rows))
        if len(self.classes) < 2:
            raise UsageError(f"{data} has {len(self.classes)} classes of images; tiles need at least 2")
        if len({label.casefold() for label in self.classes}) < len(self.classes):
            raise UsageError(f"{data} has classes whose names differ only in case")
        for label in self.classes:
            if read_grid(f"{label}, x") != [[label.casefold(), "x"]] or label.casefold() == EMPTY:
                raise UsageError(f"class {label!r} of {data} cannot appear in a list separated by commas: rename it")
        self._cache: dict[tuple[int, int], tuple[str, NDArray[np.uint8]]] = {}

    def deal(
        self, names: Names, variety: int, side: int, rng: np.random.Generator, bad_rows: Literal["skip", "fail"]
    ) -> DealtImages:
        """Choose an image of the right class for every tile of a full board.

        A class has up to `variety` different images, which repeat only if it has more tiles. `side` is in pixels.
        """
        skipped = list(self._unlabelled)
        if skipped and bad_rows == "fail":
            raise UsageError(f"row {skipped[0].index} of {self._data} is bad: {skipped[0].reason}")
        chosen = {
            label: cycle(self._choose(label, min(variety, count), side, rng, bad_rows, skipped))
            for label, count in Counter(chain.from_iterable(names)).items()
        }
        rows = tuple(tuple([next(chosen[label]) for label in line]) for line in names)
        return DealtImages(rows, self._digest(rows, side), tuple(skipped))

    def _choose(
        self,
        label: str,
        count: int,
        side: int,
        rng: np.random.Generator,
        bad_rows: Literal["skip", "fail"],
        skipped: list[SkippedRow],
    ) -> list[int]:
        good: list[int] = []
        for row in rng.permutation(self._rows[label]).tolist():
            try:
                self._load(row, side)
            except BadRow as error:
                if bad_rows == "fail":
                    raise UsageError(f"row {row} of {self._data}, of class {label}, is bad: {error}") from None
                skipped.append(SkippedRow(row, str(error)))
                continue
            good.append(row)
            if len(good) == count:
                break
        if not good:
            raise UsageError(f"class {label} of {self._data} has no good image; the last error: {skipped[-1].reason}")
        return good

    def check(self, dealt: DealtImages, side: int) -> None:
        """Raise `StateError` if images have changed since they were dealt."""
        try:
            digest = self._digest(dealt.rows, side)
        except BadRow as error:
            raise StateError(f"an image of {self._data} is no longer valid: {error}") from None
        if digest != dealt.digest:
            raise StateError(f"the images of {self._data} have changed since the tiles were dealt")

    def image(self, row: int, side: int) -> NDArray[np.uint8]:
        """Return an image scaled to fit a square: uint8 (side, side, 3), read-only."""
        try:
            return self._load(row, side)[1]
        except BadRow as error:
            raise StateError(f"row {row} of {self._data} is no longer valid: {error}") from None

    def _digest(self, rows: Iterable[Iterable[int]], side: int) -> str:
        parts = [f"{row} {self._load(row, side)[0]}" for row in chain.from_iterable(rows)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def _load(self, row: int, side: int) -> tuple[str, NDArray[np.uint8]]:
        """Load the hash of a row and its scaled image; cached."""
        cached = self._cache.get((row, side))
        if cached is None:
            if not 0 <= row < len(self._source):
                raise BadRow(f"there is no row {row}")
            example = self._source.read(row)
            image = letterbox(example.images[0], side)
            image.flags.writeable = False
            cached = self._cache[row, side] = (example.digest, image)
            while len(self._cache) * image.nbytes > CACHE_BYTES:
                self._cache.pop(next(iter(self._cache)), None)
        return cached


@lru_cache(maxsize=4)
def tile_images(tiles: ImageTiles, data: str | None, split: str | None) -> TileImages:
    """Open the images for a configuration; without `data`, CIFAR-10 comes from the Hub. Cached per process."""
    if tiles == "digits":
        return TileImages(open_digits(), "digits")
    if tiles == "cifar10":
        data, split = data or CIFAR10_ON_THE_HUB, split or "test"
    return TileImages(open_table(str(data), split), str(data))


def _report(unlabelled: list[int]) -> tuple[SkippedRow, ...]:
    """Report all unlabelled rows in one entry, because the report is part of the state and must be short."""
    if not unlabelled:
        return ()
    others = f", as in {len(unlabelled) - 1} other rows" if len(unlabelled) > 1 else ""
    return (SkippedRow(min(unlabelled), f"its label is empty{others}"),)


class ImageTile(NamedTuple):
    """A tile with an image: the class and the row of the image in the data."""

    label: str
    row: int

    def __repr__(self) -> str:
        # The painter seeds a sprite's noise with the repr, so changing it changes published images.
        return f"PictureTile(label={self.label!r}, row={self.row})"


@lru_cache(maxsize=4096)
def tiles_of_row(names: tuple[str, ...], rows: tuple[int, ...]) -> tuple[Hashable, ...]:
    """Return the cells of a row; cached because a move changes only one or two rows."""
    return tuple(name if name == EMPTY else ImageTile(name, row) for name, row in zip(names, rows))


def image_side(cell: int) -> int:
    """Return the side of the image on a tile in pixels, given the side of the cell."""
    return round(cell * IMAGE_SHARE)


def paint_image(canvas: Canvas, image: NDArray[np.uint8], angle: float, *, theme: ThemeName) -> None:
    """Paint a tile with an image of side `image_side` onto a square canvas that shows an empty cell."""
    side = canvas.width
    canvas.rectangle(0, 0, side, side, THEMES[theme].tile, radius=side * 0.09)
    canvas.image(image, side / 2, side / 2, angle)


def open_digits() -> Table:
    """Load handwritten digits, dark ink on white: 1,797 images of 8 x 8 pixels by 13 writers, about 180 per digit.

    The images are the test set of Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, 1998; UCI, CC BY
    4.0), included in scikit-learn. Digits reach the edges of the images, so a margin of one pixel is added.
    """
    with importing("tiles=digits", "tasks"):
        from sklearn.datasets import load_digits
    digits = load_digits()
    ink = np.pad(digits.images.astype(np.int64), ((0, 0), (1, 1), (1, 1)))
    images = (255 - ink * 255 // 16).astype(np.uint8)

    def read(index: int) -> dict[str, Any]:
        buffer = io.BytesIO()
        Image.fromarray(images[index]).save(buffer, "PNG")
        return {"image": buffer.getvalue(), "label": str(digits.target[index])}

    return Table(("image", "label"), range(len(images)), read)
