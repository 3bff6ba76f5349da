"""Open a table by path, URL or Hub id."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from vlmgym.errors import UsageError, one_line
from vlmgym.sandbox.datasets.arrow import open_parquet
from vlmgym.sandbox.datasets.hub import HUB_ID, download_tables, open_hub, open_saved
from vlmgym.sandbox.datasets.rows import DataRow, DerivedTable, Table
from vlmgym.sandbox.datasets.stdlib_tables import CsvTable, JsonTable, file_version

METADATA = "metadata"
"""Name of the table file in a Hugging Face image folder. Its column `file_name` holds paths."""
SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
SAVED = ("dataset_dict.json", "state.json")
"""Files that mark a folder saved by `datasets`."""
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
Versions = tuple[tuple[str, int, int, int], ...]


def open_table(data: str, split: str | None = None) -> Table:
    """Open a file, a folder, an fsspec URL or a dataset on the Hub.

    Tables are cached in the process until their local files change.
    """
    path = Path(data).expanduser()
    try:
        return _open(data, path, split, _versions(path, split))
    except OSError as error:
        raise UsageError(f"cannot read {data}: {error.strerror or one_line(str(error))}") from None


def _versions(path: Path, split: str | None) -> Versions:
    """Paths and versions of all local files and folders from which the data may be read."""
    if not path.exists():
        return ()
    found = [path]
    for folder in (path, path / "data", *([path / split] if split else [])):
        if folder.is_dir():
            found += [entry for entry in folder.iterdir() if entry.suffix in SUFFIXES or entry.is_dir()]
    return tuple(sorted((str(entry), *file_version(entry.stat())) for entry in found if entry.exists()))


@lru_cache(maxsize=8)
def _open(data: str, path: Path, split: str | None, versions: Versions) -> Table:
    if path.is_dir():
        return _open_folder(path, split)
    if path.is_file():
        if split is not None:
            raise UsageError(f"{data} is a single file and has no split {split!r}")
        return _open_files([path], path.parent)
    if "://" in data:
        if split is not None:
            raise UsageError(f"{data} is a URL and has no split {split!r}: name the files of the split")
        return _open_files(download_tables(data), None)
    if HUB_ID.fullmatch(data) and path.suffix not in SUFFIXES:
        return open_hub(data, split)
    raise UsageError(f"there is no file or folder {data!r}, and it is not a Hub id (owner/name)")


def _open_folder(folder: Path, split: str | None) -> Table:
    if any((folder / name).is_file() for name in SAVED):
        return open_saved(folder, split)
    if split is not None:
        files = _table_files(folder, split) or _table_files(folder / "data", split)
        if not files and (folder / split).is_dir():
            return _open_folder(folder / split, None)
        if not files:
            raise UsageError(f"{folder} has no split {split!r}: there is no table file or folder with that name")
        return _open_files(files, folder)
    files = _table_files(folder, METADATA) or _table_files(folder) or _table_files(folder / "data")
    if files:
        return _open_files(files, folder)
    table = ImageFolder(folder)
    if not len(table):
        raise UsageError(f"{folder} has neither a table ({', '.join(SUFFIXES)}) nor folders of images")
    return table


def _table_files(folder: Path, stem: str | None = None) -> list[Path]:
    """List the table files of a folder; with a stem, only `STEM.*` or its shards (`STEM-00000-of-00003.parquet`)."""
    return [
        path
        for path in sorted(folder.glob("*"))
        if path.suffix in SUFFIXES and (stem is None or path.stem == stem or path.name.startswith(f"{stem}-"))
    ]


def _open_files(files: list[Path], folder: Path | None) -> Table:
    """Open one table file of any kind, or several Parquet files; image paths are relative to `folder`."""
    path, suffixes = files[0], {path.suffix for path in files}
    table: Table
    if suffixes == {".parquet"}:
        table = open_parquet(files, folder)
        if len(files) > 1:
            return table
    elif len(files) > 1:
        names = ", ".join(path.name for path in files[:5]) + (" ..." if len(files) > 5 else "")
        raise UsageError(f"{folder} has several tables ({names}): name one as data=..., or set split=...")
    elif path.suffix in (".csv", ".tsv"):
        table = CsvTable(path, "," if path.suffix == ".csv" else "\t")
    elif path.suffix in (".jsonl", ".json"):
        table = JsonTable(path)
    else:
        raise UsageError(f"{path} is not a known kind of file: {', '.join(SUFFIXES)}")
    table.folder, table.stem = folder, path.stem
    if folder is not None and path.stem == METADATA and "file_name" in table.columns and "image" not in table.columns:
        return DerivedTable(table, ("image",), lambda row: {"image": row.get("file_name")})
    return table


class ImageFolder(Table):
    """A table of images stored in one folder per class, sorted by class and file name.

    Its columns are `image`, a path, and `label`, the name of the class.
    """

    columns = ("image", "label")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        labels = sorted(path.name for path in folder.iterdir() if path.is_dir())
        files = ((label, name) for label in labels for name in sorted(os.listdir(folder / label)))
        self._paths = [f"{label}/{name}" for label, name in files if name.lower().endswith(IMAGE_SUFFIXES)]

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> DataRow:
        return {"image": self._paths[index], "label": self._paths[index].partition("/")[0]}
