"""Opening the data that a user names."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.folders import TABLE_SUFFIXES, open_file, open_folder
from vlmgym.sandbox.datasets.hub import HUB_ID, open_hub
from vlmgym.sandbox.datasets.table import Table


@lru_cache(maxsize=8)
def open_table(data: str, split: str | None = None) -> Table:
    """The rows of a file, a folder or a hub id; opened once per process.

    Args:
        data: Path of a file or folder, or else an id on the hub.
        split: Which part of it, where it has parts.

    Raises:
        UsageError: There is no such data, or it is of no kind that can be read.
    """
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
