"""Folders as tables: pictures in folders of classes, or table files by their usual names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.csv_table import CsvTable
from vlmgym.sandbox.datasets.hub import open_saved
from vlmgym.sandbox.datasets.json_tables import open_json
from vlmgym.sandbox.datasets.nlvr2 import has_nlvr2_layout, with_nlvr2_pictures
from vlmgym.sandbox.datasets.osv5m import has_osv5m_layout, with_osv5m_pictures
from vlmgym.sandbox.datasets.parquet import ParquetTable
from vlmgym.sandbox.datasets.rows import Row
from vlmgym.sandbox.datasets.table import DerivedTable, Table

TABLE_SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
METADATA = "metadata"
"""Name of the table of a folder of pictures, as Hugging Face has it; paths are in its column `file_name`."""
SAVED = ("dataset_dict.json", "state.json")
"""Files by which a folder that `datasets` saved is known."""


def open_file(path: Path, folder: Path | None = None) -> Table:
    """The table of a file, by its suffix.

    Args:
        path: The file.
        folder: The folder that paths in it are relative to; None: its own.

    Raises:
        UsageError: It is of no known kind, or cannot be read.
    """
    table: Table
    if path.suffix == ".parquet":
        table = ParquetTable([path], folder or path.parent)
    elif path.suffix in (".csv", ".tsv"):
        table = CsvTable(path, "," if path.suffix == ".csv" else "\t")
    elif path.suffix in (".jsonl", ".json"):
        table = open_json(path)
    else:
        raise UsageError(f"{path} is not a file of a known kind: {', '.join(TABLE_SUFFIXES)}")
    table.folder = root = folder or path.parent
    if has_nlvr2_layout(table):
        return with_nlvr2_pictures(table, root)
    if has_osv5m_layout(table, root, path.stem):
        return with_osv5m_pictures(table, root, path.stem)
    if path.stem == METADATA and "file_name" in table.columns and "image" not in table.columns:
        return DerivedTable(table, ("image",), lambda row: {"image": row.get("file_name")}, root)
    return table


def open_folder(folder: Path, split: str | None) -> Table:
    """The table of a folder: data saved by `datasets`, a split's files, a metadata file, or classes of pictures.

    Raises:
        UsageError: Nothing of this is there, or it is not clear which.
    """
    if any((folder / name).is_file() for name in SAVED):
        return open_saved(folder, split)
    if split is not None:
        files = _table_files(folder, split) or _table_files(folder / "data", split)
        if not files and (folder / split).is_dir():
            return open_folder(folder / split, None)
        if not files:
            raise UsageError(f"{folder} has no split {split!r}: neither a table file nor a folder of that name")
        return _open_files(files, folder)
    files = _table_files(folder, METADATA) or _table_files(folder) or _table_files(folder / "data")
    return _open_files(files, folder) if files else PictureFolder(folder)


def _table_files(folder: Path, stem: str | None = None) -> list[Path]:
    """The table files of a folder; with a stem, those of that name or of its parts (`test-00000-of-00003.parquet`)."""
    return [
        path
        for path in sorted(folder.glob("*"))
        if path.suffix in TABLE_SUFFIXES and (stem is None or path.stem == stem or path.name.startswith(f"{stem}-"))
    ]


def _open_files(files: list[Path], folder: Path) -> Table:
    if len(files) == 1:
        return open_file(files[0], folder)
    if all(path.suffix == ".parquet" for path in files):
        return ParquetTable(files, folder)
    names = ", ".join(path.name for path in files[:5]) + (" ..." if len(files) > 5 else "")
    raise UsageError(f"{folder} has several tables ({names}): name one as data=..., or a split")


class PictureFolder(Table):
    """Pictures in folders of classes: the columns are `image`, a path, and `label`, the name of its folder.

    The rows are sorted by class and name. Of each picture only the name is kept.
    """

    columns = ("image", "label")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with os.scandir(folder) as entries:
            self.classes = tuple(sorted(entry.name for entry in entries if entry.is_dir()))
        names = [_picture_names(folder / label) for label in self.classes]
        self._names = np.array([name for found in names for name in found], dtype=np.str_)
        self._ends = np.cumsum([len(found) for found in names])
        if not self._names.size:
            raise UsageError(f"{folder} holds no table file ({', '.join(TABLE_SUFFIXES)}) and no folders of pictures")

    def __len__(self) -> int:
        return int(self._names.size)

    def __getitem__(self, index: int) -> Row:
        label = self.classes[int(np.searchsorted(self._ends, index, side="right"))]
        return {"image": f"{label}/{self._names[index]}", "label": label}


def _picture_names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.name.lower().endswith(PICTURE_SUFFIXES))
