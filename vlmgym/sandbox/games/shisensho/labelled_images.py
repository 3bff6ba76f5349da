"""Labelled images from sources other than tables: handwritten digits and CIFAR-10."""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.extra import library
from vlmgym.sandbox.datasets.rows import DataRow, Table

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"test": ("test_batch.bin",), "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6))}
ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
"""Folder within the archive that contains the batches."""
PYTHON_VERSION = ("cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1")
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
"""Number of bytes per image: the class, then the red, green and blue planes."""
MAX_BATCH = 1 << 26
"""Maximum size of a batch in bytes; the original batches have 31 million."""


class LabelledImages(Table):
    """Table with the columns `image`, encoded as PNG, and `label`, the name of the class."""

    columns = ("image", "label")
    folder = None

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[Any], names: tuple[str, ...]) -> None:
        self._images, self._labels, self._names = images, labels, names

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> DataRow:
        buffer = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(self._images[index])).save(buffer, "PNG")
        return {"image": buffer.getvalue(), "label": self._names[self._labels[index]]}


def open_digits() -> LabelledImages:
    """Load handwritten digits, dark ink on white: 1,797 images of 8 x 8 pixels by 13 writers, about 180 per digit.

    The images are the test set of Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, 1998; UCI, CC BY
    4.0), included in scikit-learn. Digits reach the edges of the images, so a margin of one pixel is added.
    """
    digits = library("sklearn.datasets", "tiles=digits", "tasks").load_digits()
    ink = np.pad(digits.images.astype(np.int64), ((0, 0), (1, 1), (1, 1)))
    return LabelledImages((255 - ink * 255 // 16).astype(np.uint8), digits.target, tuple("0123456789"))


def open_cifar10(path: Path, split: str) -> LabelledImages:
    """Load a split of CIFAR-10, `test` or `train`, from its archive, its folder of batches, or the parent of either.

    The images are by Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    if split not in BATCHES:
        raise UsageError(f"CIFAR-10 has the splits test and train, got {split!r}")
    try:
        records = np.frombuffer(b"".join(_read_batches(path, BATCHES[split])), np.uint8).reshape(-1, RECORD)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise UsageError(f"cannot read {ARCHIVE} at {path}: {error}") from None
    labels = records[:, 0]
    if not len(records) or labels.max() >= len(CLASSES):
        raise UsageError(f"cannot read {ARCHIVE} at {path}: its batches do not have 10 classes")
    return LabelledImages(records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels, CLASSES)


def is_cifar10(path: Path) -> bool:
    """True for a tar archive, CIFAR-10's batch folder, or a folder that contains CIFAR-10's archive or batch folder.

    Raises:
        UsageError: The path is or contains CIFAR-10 as Python pickles.
    """
    names = {path.name, *(entry.name for entry in path.iterdir())} if path.is_dir() else {path.name}
    if names.intersection(PYTHON_VERSION):
        raise UsageError(f"{path} is CIFAR-10 as Python pickles, which are not safe to read: download {ARCHIVE}")
    return ".tar" in path.suffixes or not names.isdisjoint((ARCHIVE, FOLDER, *BATCHES["test"]))


def _read_batches(path: Path, names: tuple[str, ...]) -> list[bytes]:
    """Read batches from a folder, or from the archive without extracting it."""
    folder = path / FOLDER if (path / FOLDER).is_dir() else path
    if (folder / names[0]).is_file():
        found = {name: (folder / name).read_bytes() for name in names}
    else:
        found = {}
        with tarfile.open(path / ARCHIVE if path.is_dir() else path, "r|*") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isreg() and member.size <= MAX_BATCH else None
                if file is not None and (name := PurePosixPath(member.name).name) in names:
                    found[name] = file.read()
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{missing[0]} is missing")
    return [found[name] for name in names]
