"""Storing a table that is handed over in Python, so that other processes and later runs can open it."""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from PIL import Image

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.cache import cache_folder
from vlmgym.sandbox.datasets.hub import HubTable
from vlmgym.sandbox.datasets.rows import BadRow, is_empty, is_unicode, shown
from vlmgym.sandbox.datasets.table import columns_once

ROWS = "rows.jsonl"
PICTURES = "pictures"
PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
CHUNK = 10_000
"""Rows of a DataFrame that are turned into objects at once."""


def keep(table: Any, folder: str | Path | None = None, paths: Collection[str] = ()) -> str:
    """Store a table as JSON lines, with its pictures as files beside it.

    Pictures may be `PIL.Image` objects, encoded bytes, or `{"bytes": ..., "path": ...}` as in `datasets`.

    Args:
        table: A pandas DataFrame, a `datasets.Dataset`, or dicts by column (a list, or anything that yields them).
        folder: Where to; must not be there yet, or be empty. None: a folder in the cache named by the content, which is
            the same for the same table.
        paths: Columns whose texts are paths of pictures, relative to the working folder. These pictures are copied; a
            path that leads nowhere stays, and its row is a bad one.

    Returns:
        What to give as `data=`, for instance `make_game("vqa", data=keep(frame))`.

    Raises:
        UsageError: The table is of another kind or has no rows, a value has no form in JSON, or the folder is used.
    """
    paths = (paths,) if isinstance(paths, str) else paths
    target = None if folder is None else Path(folder).expanduser()
    if target is not None and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already: name a new or an empty folder")
    parent = cache_folder("kept") if target is None else target.parent
    parent.mkdir(parents=True, exist_ok=True)
    unfinished = parent / f".unfinished-{uuid4().hex}"
    unfinished.mkdir()
    try:
        digest = _write(_rows(table), unfinished, paths)
        final = parent / digest if target is None else target
        if target is None and final.exists():
            shutil.rmtree(unfinished)
        else:
            os.replace(unfinished, final)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return str(final / ROWS)


def _rows(table: Any) -> Iterator[Mapping[str, Any]]:
    kind = type(table).__module__.partition(".")[0]
    if kind == "pandas":
        columns_once(map(str, table.columns), "the DataFrame")
        for start in range(0, len(table), CHUNK):
            yield from table.iloc[start : start + CHUNK].to_dict("records")
    elif kind == "datasets" and isinstance(getattr(table, "features", None), Mapping):
        rows = HubTable(table, None)  # leaves pictures as they were encoded
        yield from map(rows.__getitem__, range(len(rows)))
    elif isinstance(table, Iterable) and not isinstance(table, str | bytes | Mapping):
        yield from table
    else:
        raise UsageError(f"a table is a DataFrame, a datasets.Dataset or a list of dicts, not {type(table).__name__}")


def _write(rows: Iterable[Mapping[str, Any]], folder: Path, paths: Collection[str]) -> str:
    """Write the files; returns a hash of their content."""
    (folder / PICTURES).mkdir()
    digest = hashlib.sha256()
    count = 0
    with (folder / ROWS).open("w", encoding="utf-8") as file:
        for count, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise UsageError(f"row {count - 1} is no dict but {shown(row)}")
            plain: dict[str, Any] = {}
            for column in row:
                try:
                    plain[_name(column, plain)] = _plain(row[column], folder, column in paths)
                except BadRow as error:
                    raise UsageError(f"row {count - 1}, column {column!r}: {error}") from None
            line = json.dumps(plain, allow_nan=False, ensure_ascii=False) + "\n"
            digest.update(line.encode())
            file.write(line)
    if not count:
        raise UsageError("the table has no rows")
    return digest.hexdigest()[:32]


def _plain(value: Any, folder: Path, is_path: bool) -> Any:
    """A value as JSON has it; a picture is written to a file, named by its content, and becomes its path."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, str) and not is_unicode(value):
        raise BadRow(f"{shown(value)} is no Unicode text")
    if isinstance(value, str) and is_path and Path(value).is_file():
        return _picture(Path(value).read_bytes(), folder)
    if isinstance(value, str | bool | int):
        return value
    if is_empty(value) or _is_missing(value):
        return None
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, bytes):
        return _picture(value, folder)
    if isinstance(value, Image.Image):
        buffer = io.BytesIO()
        (value if value.mode in PNG_MODES else value.convert("RGB")).save(buffer, "PNG")
        return _picture(buffer.getvalue(), folder)
    if isinstance(value, Mapping):
        if set(value) == {"bytes", "path"}:
            return _plain(value["path"] if value["bytes"] is None else value["bytes"], folder, True)
        items: dict[str, Any] = {}
        for key, item in value.items():
            items[_name(key, items)] = _plain(item, folder, is_path)
        return items
    if isinstance(value, list | tuple):
        return [_plain(item, folder, is_path) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise BadRow(f"{shown(value)} ({type(value).__name__}) has no form in JSON")


def _name(key: Any, before: Collection[str]) -> str:
    """A key as JSON has it, which is a text, unlike all before."""
    name = str(key)
    if not is_unicode(name):
        raise BadRow(f"the name {shown(key)} is no Unicode text")
    if name in before:
        raise BadRow(f"the name {name!r} comes twice")
    return name


def _is_missing(value: Any) -> bool:
    """Whether it is pandas' NA or NaT, which are equal to nothing."""
    return type(value).__name__ in ("NAType", "NaTType")


def _picture(content: bytes, folder: Path) -> str:
    name = f"{PICTURES}/{hashlib.sha256(content).hexdigest()[:32]}"
    (folder / name).write_bytes(content)
    return name
