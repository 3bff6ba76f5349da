"""Opening the data that a user names."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.folders import TABLE_SUFFIXES, open_file, open_folder
from vlmgym.sandbox.datasets.hub import HUB_ID, open_hub
from vlmgym.sandbox.datasets.lines import version_of
from vlmgym.sandbox.datasets.table import Table

Versions = tuple[tuple[str, int, int, int], ...]
"""Paths, and `version_of` each."""


def open_table(data: str, split: str | None = None) -> Table:
    """The rows of a file, a folder or a hub id; opened once per process, and anew if the files have changed.

    Args:
        data: Path of a file or folder, or else an id on the hub.
        split: Which part of it, where it has parts.

    Raises:
        UsageError: There is no such data, or it is of no kind that can be read.
    """
    path = Path(data).expanduser()
    try:
        versions = _versions(path, split)
    except OSError as error:
        raise UsageError(f"{data} cannot be read: {error.strerror}") from None
    return _open(data, split, versions)


def _versions(path: Path, split: str | None) -> Versions:
    """The tables and folders that the data may be read from, and what differs if one of them has changed."""
    if not path.is_dir():
        return ((str(path), *version_of(path.stat())),) if path.exists() else ()
    found = [(str(path), *version_of(path.stat()))]
    for folder in (path, path / "data", *([path / split] if split else [])):
        if folder.is_dir():
            with os.scandir(folder) as entries:
                parts = [entry for entry in entries if entry.name.endswith(TABLE_SUFFIXES) or entry.is_dir()]
                found += [(entry.path, *version_of(entry.stat())) for entry in parts if os.path.exists(entry.path)]
    return tuple(sorted(found))


@lru_cache(maxsize=8)
def _open(data: str, split: str | None, versions: Versions) -> Table:
    """As `open_table`; the versions are there to tell what is kept apart."""
    path = Path(data).expanduser()
    try:
        if path.is_file():
            if split is not None:
                raise UsageError(f"{data} is one file, which has no split {split!r}")
            return open_file(path)
        if path.is_dir():
            return open_folder(path, split)
    except OSError as error:
        raise UsageError(f"{data} cannot be read: {error.strerror}") from None
    if HUB_ID.fullmatch(data) and path.suffix not in TABLE_SUFFIXES:
        return open_hub(data, split)
    raise UsageError(f"there is no file or folder {data!r}, and it is not a hub id (owner/name)")
