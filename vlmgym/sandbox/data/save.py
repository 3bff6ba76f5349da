"""Save a table from Python as files that other processes and later runs can open."""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from PIL import Image

from vlmgym.errors import UsageError, short_repr
from vlmgym.sandbox.data.rows import BadRow, as_text, is_empty
from vlmgym.sandbox.data.tables import ArrowTable, cache_folder, unique_columns

ROWS = "rows.jsonl"
IMAGES = "images"
PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")


def save_table(table: Any, folder: str | Path | None = None, paths: Collection[str] = ()) -> str:
    """Save a table as JSON lines, with its images as files next to it.

    Images may be `PIL.Image` objects, encoded bytes, or `{"bytes": ..., "path": ...}` as in `datasets`.

    Args:
        table: A pandas DataFrame, a `datasets.Dataset`, or an iterable of dicts.
        folder: Destination, which must be new or empty. None: a cache folder named after a hash of the content.
        paths: Columns of image paths, relative to the working directory. The images are copied. A path without a file
            is saved unchanged, and its row will be rejected as bad when it is read.

    Returns:
        A value for `data=`, for example `make_game("vqa", data=save_table(frame))`.

    Raises:
        UsageError: The table has another type or no rows, a value cannot be converted to JSON, or the folder is not
            empty.
    """
    paths = (paths,) if isinstance(paths, str) else paths
    target = None if folder is None else Path(folder).expanduser()
    if target is not None and target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} already exists: choose a new or empty folder")
    parent = cache_folder("tables") if target is None else target.parent
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
    library = type(table).__module__.partition(".")[0]
    if library == "pandas":
        unique_columns(list(map(str, table.columns)), "the DataFrame")
        yield from table.to_dict("records")
    elif library == "datasets" and isinstance(getattr(table, "features", None), Mapping):
        yield from ArrowTable(table, None)
    elif isinstance(table, Iterable) and not isinstance(table, str | bytes | Mapping):
        yield from table
    else:
        raise UsageError(
            f"table must be a DataFrame, a datasets.Dataset or a list of dicts, got {type(table).__name__}"
        )


def _write(rows: Iterable[Mapping[str, Any]], folder: Path, paths: Collection[str]) -> str:
    """Write rows and images to a folder and return a hash of the rows: 32 hexadecimal digits."""
    (folder / IMAGES).mkdir()
    digest = hashlib.sha256()
    index = -1
    with (folder / ROWS).open("wb") as file:
        for index, row in enumerate(rows):
            try:
                if not isinstance(row, Mapping):
                    raise BadRow(f"expected a dict, got {short_repr(row)}")
                plain = {str(column): _plain(row[column], folder, column in paths) for column in row}
                line = json.dumps(plain, ensure_ascii=False).encode() + b"\n"
            except (BadRow, UnicodeEncodeError) as error:
                raise UsageError(f"row {index} cannot be saved: {error}") from None
            digest.update(line)
            file.write(line)
    if index < 0:
        raise UsageError("the table has no rows")
    return digest.hexdigest()[:32]


def _plain(value: Any, folder: Path, is_path: bool) -> Any:
    """Convert a value to JSON. An image is saved to a file named after its hash, and replaced with the file's path."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, str) and is_path and Path(value).is_file():
        value = Path(value).read_bytes()
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, folder, is_path) for item in value]
    if is_empty(value) or type(value).__name__ in ("NAType", "NaTType"):  # pandas
        return None
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, Image.Image):
        buffer = io.BytesIO()
        wide = value.mode[0] in "IF" and value.mode not in PNG_MODES  # RGB would clip their values
        image = value if wide or value.mode in PNG_MODES else value.convert("RGB")
        image.save(buffer, "TIFF" if wide else "PNG")
        value = buffer.getvalue()
    if isinstance(value, bytes):
        name = f"{IMAGES}/{hashlib.sha256(value).hexdigest()[:32]}"
        (folder / name).write_bytes(value)
        return name
    if isinstance(value, Mapping):
        if set(value) == {"bytes", "path"}:
            return _plain(value["path"] if value["bytes"] is None else value["bytes"], folder, True)
        return {str(key): _plain(item, folder, is_path) for key, item in value.items()}
    if isinstance(value, Decimal | datetime.date | datetime.time):
        return as_text(value)
    raise BadRow(f"{short_repr(value)} ({type(value).__name__}) cannot be converted to JSON")
