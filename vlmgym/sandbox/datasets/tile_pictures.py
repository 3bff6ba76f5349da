"""Pictures for tiles that match by class: which of them a board shows, and how they look in a small square."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import StateError, UsageError
from vlmgym.sandbox.datasets.cifar10 import Cifar10, is_cifar10
from vlmgym.sandbox.datasets.digits import Digits
from vlmgym.sandbox.datasets.images import letterbox
from vlmgym.sandbox.datasets.opening import open_table
from vlmgym.sandbox.datasets.rows import BadRow, SkippedRow, is_empty, text_of
from vlmgym.sandbox.datasets.source import Source, map_columns
from vlmgym.sandbox.datasets.table import Table
from vlmgym.sandbox.perception import read_grid
from vlmgym.sandbox.rules.tiles import EMPTY

T = TypeVar("T")

PictureTiles = Literal["digits", "cifar10", "folder"]
Names = Sequence[Sequence[str]]
"""The class of the tile in each cell, rows x columns; `EMPTY` where there is none."""

COLUMNS = {"image": ("image", "img", "picture", "file_name"), "label": ("label", "class", "category", "fine_label")}
CIFAR10_ON_THE_HUB = "uoft-cs/cifar10"
KEPT_BYTES = 1 << 26
"""Small squares that are kept."""
BOARDS_KEPT = 1024
"""Boards whose pictures were found to be the right ones."""


@dataclass(frozen=True, slots=True)
class DealtPictures:
    """Which pictures the tiles of a board show, those taken off the board included.

    Attributes:
        rows: Row of the data by cell, rows x columns.
        digest: Hash of these rows and their pictures, 32 hexadecimal digits.
        skipped: Bad rows that were passed over.
    """

    rows: tuple[tuple[int, ...], ...]
    digest: str
    skipped: tuple[SkippedRow, ...] = ()


class TilePictures:
    """Pictures with classes, from any table with an image and a label.

    Attributes:
        classes: Names of the classes that have pictures, sorted.
    """

    def __init__(self, table: Table, data: str) -> None:
        """Args:
        table: The rows.
        data: What the user named, for messages.

        Raises:
            UsageError: A column is missing, there are fewer than two classes, or one has a name that cannot be told.
        """
        self._data = data
        columns = map_columns(COLUMNS, frozenset(), (), table, data)
        self._source = Source(table, columns, ("image",), False)
        label_column = str(columns["label"])
        found: dict[str, list[int]] = defaultdict(list)
        unlabelled: list[int] = []
        for row, value in enumerate(table.values(label_column)):
            (unlabelled if is_empty(value) else found[str(value)]).append(row)
        named: dict[str, list[int]] = defaultdict(list)
        for rows in found.values():
            value = table[rows[0]].get(label_column)  # where classes are numbers, this is the name
            if is_empty(value):
                unlabelled += rows
            else:
                try:
                    named[text_of({"label": value}, "label")] += rows
                except BadRow as error:
                    raise UsageError(f"row {rows[0]} of {data} names no class: {error}") from None
        self._rows: dict[str, NDArray[np.int64]] = {label: np.array(sorted(rows)) for label, rows in named.items()}
        self._unlabelled = _told(unlabelled)
        self.classes = tuple(sorted(self._rows))
        if len(self.classes) < 2:
            raise UsageError(f"{data} has {len(self.classes)} classes of pictures; tiles need 2 and more")
        if len({label.casefold() for label in self.classes}) < len(self.classes):
            raise UsageError(f"{data} has classes whose names differ in case only")
        for label in self.classes:
            if read_grid(f"{label}, x") != [[label.casefold(), "x"]] or label.casefold() == EMPTY:
                raise UsageError(f"the class {label!r} of {data} cannot be told in words on one line: rename it")
        self._kept: dict[tuple[int, int], tuple[str, NDArray[np.uint8]]] = {}
        self._right: dict[tuple[DealtPictures, int], None] = {}

    def deal(
        self, names: Names, variety: int, side: int, rng: np.random.Generator, bad_rows: Literal["skip", "fail"]
    ) -> DealtPictures:
        """Choose a picture of its class for every tile of a full board: different ones, as far as there are any.

        Args:
            names: The class of each tile.
            variety: Different pictures of a class, at most.
            side: Pixels of the square that they are shown in.
            rng: Chance.
            bad_rows: Whether a picture that cannot be read is passed over or an error.

        Raises:
            UsageError: A picture is bad and `bad_rows` is `fail`, or a class has no good one.
        """
        skipped = list(self._unlabelled)
        if skipped and bad_rows == "fail":
            raise UsageError(f"row {skipped[0].index} of {self._data} is bad: {skipped[0].reason}")
        chosen = {
            label: self._choose(label, min(variety, count), side, rng, bad_rows, skipped)
            for label, count in Counter(_flat(names)).items()
        }
        taken: dict[str, int] = defaultdict(int)
        rows = []
        for line in names:
            cells = []
            for label in line:
                cells.append(chosen[label][taken[label] % len(chosen[label])])
                taken[label] += 1
            rows.append(tuple(cells))
        return DealtPictures(tuple(rows), self._digest(rows, side), tuple(skipped))

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
            raise UsageError(f"no picture of class {label} in {self._data} is good; the last: {skipped[-1].reason}")
        return good

    def check(self, names: Names, dealt: DealtPictures, side: int) -> None:
        """Refuse pictures that are not those of a board.

        Args:
            names: The board, of which tiles may have been taken off.
            dealt: What its tiles show.
            side: As for `deal`.

        Raises:
            StateError: A picture is of another class, or is not what it was when it was dealt.
        """
        if [len(line) for line in dealt.rows] != [len(line) for line in names]:
            raise StateError("the pictures of the tiles are not as many as the cells")
        for label, row in zip(_flat(names), _flat(dealt.rows)):
            if label != EMPTY and not (label in self._rows and _holds(self._rows[label], row)):
                raise StateError(f"row {row} of {self._data} is not a picture of class {label}")
        if (dealt, side) in self._right:
            return
        try:
            digest = self._digest(dealt.rows, side)
        except BadRow as error:
            raise StateError(f"a picture of {self._data} has become bad: {error}") from None
        if digest != dealt.digest:
            raise StateError(f"the pictures in {self._data} are not what they were when the tiles were dealt")
        self._right[dealt, side] = None
        while len(self._right) > BOARDS_KEPT:
            self._right.pop(next(iter(self._right)), None)

    def square(self, row: int, side: int) -> NDArray[np.uint8]:
        """A picture as large as fits into a square: uint8 (side, side, 3), read-only.

        Raises:
            StateError: It has become bad since it was dealt.
        """
        try:
            return self._load(row, side)[1]
        except BadRow as error:
            raise StateError(f"row {row} of {self._data} has become bad: {error}") from None

    def _digest(self, rows: Iterable[Iterable[int]], side: int) -> str:
        parts = [f"{row} {self._load(row, side)[0]}" for row in _flat(rows)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def _load(self, row: int, side: int) -> tuple[str, NDArray[np.uint8]]:
        """The hash of a row and its picture in a square; kept for a while."""
        kept = self._kept.get((row, side))
        if kept is None:
            if not 0 <= row < len(self._source):
                raise BadRow(f"there is no row {row}")
            reading = self._source.read(row)
            picture = letterbox(reading.pictures[0], side)
            picture.flags.writeable = False
            kept = self._kept[row, side] = (reading.digest, picture)
            while len(self._kept) * picture.nbytes > KEPT_BYTES:
                self._kept.pop(next(iter(self._kept)), None)
        return kept


@lru_cache(maxsize=4)
def tile_pictures(tiles: PictureTiles, data: str | None, split: str | None) -> TilePictures:
    """The pictures that a configuration names; opened once per process.

    Args:
        tiles: `digits`; `cifar10`, from a folder with the original archive if `data` names one, or else from the hub;
            `folder`, any data with images and labels, for instance a folder of class folders.
        data: Path or hub id; None for digits.
        split: Which part of the data; CIFAR-10 has test, which is taken if none is named, and train.

    Raises:
        UsageError: They cannot be opened.
    """
    if tiles == "digits":
        return TilePictures(Digits(), "digits")
    if tiles == "cifar10":
        path = None if data is None else Path(data).expanduser()
        if path is not None and path.exists() and is_cifar10(path):
            return TilePictures(Cifar10(path, split or "test"), str(data))
        return TilePictures(open_table(data or CIFAR10_ON_THE_HUB, split or "test"), data or CIFAR10_ON_THE_HUB)
    return TilePictures(open_table(str(data), split), str(data))


def _holds(rows: NDArray[np.int64], row: int) -> bool:
    place = int(np.searchsorted(rows, row))
    return place < len(rows) and int(rows[place]) == row


def _told(unlabelled: list[int]) -> tuple[SkippedRow, ...]:
    """Rows without a label as one that stands for all, because a position holds what it says."""
    if not unlabelled:
        return ()
    others = f", as that of {len(unlabelled) - 1} others" if len(unlabelled) > 1 else ""
    return (SkippedRow(min(unlabelled), f"its label is empty{others}"),)


def _flat(lines: Iterable[Iterable[T]]) -> list[T]:
    return [cell for line in lines for cell in line]
