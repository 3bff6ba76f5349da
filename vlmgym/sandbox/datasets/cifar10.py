"""CIFAR-10 as the original archive for Python has it: a folder of pickled batches, or the tar file that holds them.

Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.plain_pickle import NotPlain, PlainArray, load_plain
from vlmgym.sandbox.datasets.rows import Row
from vlmgym.sandbox.datasets.table import Table

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"test": ("test_batch",), "train": tuple(f"data_batch_{number}" for number in range(1, 6))}
INNER = "cifar-10-batches-py"
"""Folder of the batches in the archive."""
ARCHIVE = "cifar-10-python.tar.gz"
SIDE = 32
LARGEST_BATCH = 1 << 26
"""Bytes of a batch; the original ones have 31 million."""


class Cifar10(Table):
    """The columns are `image`, 32 x 32 pixels as PNG, and `label`, the name of the class."""

    columns = ("image", "label")
    folder = None

    def __init__(self, path: Path, split: str) -> None:
        """Args:
        path: The archive, the folder it was unpacked in or that it lies in, or the folder of the batches.
        split: `test` or `train`.

        Raises:
            UsageError: There is no such split, a batch is missing, or one is damaged or no batch.
        """
        if split not in BATCHES:
            raise UsageError(f"CIFAR-10 has the splits test and train, not {split!r}")
        batches = [_read_batch(content, name) for name, content in _batches(path, BATCHES[split]).items()]
        self._pictures = np.concatenate([pictures for pictures, _ in batches])
        self._labels = np.concatenate([labels for _, labels in batches])

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Row:
        buffer = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(self._pictures[index].transpose(1, 2, 0))).save(buffer, "PNG")
        return {"image": buffer.getvalue(), "label": CLASSES[self._labels[index]]}


def is_cifar10(path: Path) -> bool:
    """Whether something is the archive, holds it, or holds its batches."""
    return path.is_file() or any((path / name).exists() for name in (INNER, ARCHIVE, *BATCHES["test"]))


def _batches(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The content of the batches by their names."""
    folder = path / INNER if (path / INNER).is_dir() else path
    try:
        if path.is_file() or not (folder / names[0]).is_file():
            return _from_archive(path if path.is_file() else path / ARCHIVE, names)
        if large := [name for name in names if (folder / name).stat().st_size > LARGEST_BATCH]:
            raise UsageError(f"{folder / large[0]} is larger than {LARGEST_BATCH >> 20} MB, which no batch is")
        return {name: (folder / name).read_bytes() for name in names}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise UsageError(f"{path} holds no CIFAR-10 for Python that can be read: {error}") from None


def _from_archive(archive: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """As `_batches`; nothing is unpacked to the disk."""
    found: dict[str, bytes] = {}
    with tarfile.open(archive, "r|*") as members:
        for member in members:
            name = member.name.removeprefix("./").removeprefix(f"{INNER}/")
            if name in names and member.isreg() and member.size <= LARGEST_BATCH:
                file = members.extractfile(member)
                found[name] = b"" if file is None else file.read()
            if len(found) == len(names):
                return {name: found[name] for name in names}
    missing = next(name for name in names if name not in found)
    raise UsageError(f"{archive} has no batch {missing}")


def _read_batch(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = load_plain(content)
    except NotPlain as error:
        raise UsageError(f"the batch {name} of CIFAR-10 is refused: {error}") from None
    data, labels = (batch.get(b"data"), batch.get(b"labels")) if isinstance(batch, dict) else (None, None)
    if not (
        isinstance(data, PlainArray)
        and isinstance(labels, list)
        and data.values.shape == (len(labels), 3 * SIDE * SIDE)
        and all(type(label) is int and 0 <= label < len(CLASSES) for label in labels)
    ):
        raise UsageError(f"the batch {name} of CIFAR-10 is refused: it has no pictures of 3 x 32 x 32 with labels")
    return data.values.reshape(-1, 3, SIDE, SIDE), np.array(labels)
