"""CIFAR-10 from the binary version of the original archive.

Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.rows import Row
from vlmgym.sandbox.datasets.table import Table

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"test": ("test_batch.bin",), "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6))}
ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
"""Folder of the batches in the archive."""
PYTHON_VERSION = ("cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1")
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
"""Bytes of an image: its class, then the red, green and blue planes."""
MAX_BATCH = 1 << 26
"""Bytes of a batch; the originals have 31 million."""


class Cifar10(Table):
    """The columns are `image`, 32 x 32 pixels as PNG, and `label`, the name of the class."""

    columns = ("image", "label")
    folder = None

    def __init__(self, path: Path, split: str) -> None:
        """Load a split, `test` or `train`, from the archive, its folder, or the folder it was extracted to.

        Raises:
            UsageError: There is no such split, or a batch is missing or damaged.
        """
        if split not in BATCHES:
            raise UsageError(f"CIFAR-10 has the splits test and train, got {split!r}")
        try:
            records = np.frombuffer(b"".join(_read_batches(path, BATCHES[split])), np.uint8).reshape(-1, RECORD)
        except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
            raise UsageError(f"cannot read {ARCHIVE} at {path}: {error}") from None
        self._labels = records[:, 0]
        self._images = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        if not len(records) or self._labels.max() >= len(CLASSES):
            raise UsageError(f"cannot read {ARCHIVE} at {path}: its batches do not have 10 classes")

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Row:
        buffer = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(self._images[index])).save(buffer, "PNG")
        return {"image": buffer.getvalue(), "label": CLASSES[self._labels[index]]}


def is_cifar10(path: Path) -> bool:
    """True for the binary archive, a folder that contains it, or the folder of its batches.

    Raises:
        UsageError: It is the Python version, whose pickles are not read.
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
