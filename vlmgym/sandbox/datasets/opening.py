"""Opening the data that a user names."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.json_lines import JsonLinesTable
from vlmgym.sandbox.datasets.table import Table


@lru_cache(maxsize=8)
def open_table(data: str, split: str | None = None) -> Table:
    """The rows of a file, a folder or a hub id; opened once per process.

    Args:
        data: What the user named.
        split: Which part of it, where it has parts.

    Raises:
        UsageError: There is no such data, or it is of no kind that can be read.
    """
    path = Path(data).expanduser()
    if path.suffix == ".jsonl" and path.is_file():
        return JsonLinesTable(path)
    raise UsageError(f"there is no data {data!r}")
