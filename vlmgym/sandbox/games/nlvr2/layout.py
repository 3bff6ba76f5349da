"""Open NLVR2 folders in the published layout (github.com/lil-lab/nlvr)."""

from __future__ import annotations

from pathlib import Path

from vlmgym.errors import short_repr
from vlmgym.sandbox.data.rows import BadRow, DataRow, is_empty
from vlmgym.sandbox.data.tables import Table, open_table

COLUMNS = ("left_image", "right_image")


def open_nlvr2(data: str, split: str | None) -> Table:
    """Open a table; if it is an NLVR2 table in a local folder, add the paths of both images."""
    table = open_table(data, split)
    folder, columns = table.folder, set(table.columns)
    if folder is None or not table.stem or not columns >= {"identifier", "sentence"} or columns.intersection(COLUMNS):
        return table
    return table.with_columns(COLUMNS, lambda row: _image_paths(row, folder))


def _image_paths(row: DataRow, folder: Path) -> dict[str, str]:
    """Find both images of a row; return their paths relative to `folder`.

    The images are in `folder` or its subfolder `images`, either directly or in a folder named after the split. Training
    images are one level deeper, in the numbered folders that the column `directory` gives.
    """
    parts = str(row.get("identifier")).split("-")
    if len(parts) != 4 or not all(part.isalnum() for part in parts):
        raise BadRow(f"identifier must be split-set-pair-sentence, got {short_repr(row.get('identifier'))}")
    split, pair = parts[0], "-".join(parts[:3])
    folders = [f"{split}/", f"images/{split}/"]
    if not is_empty(row.get("directory")):
        folders = [f"{parent}{row['directory']}/" for parent in folders] + folders
    paths = [f"{parent}{pair}-img{{}}.png" for parent in (*folders, "images/", "")]
    path = next((path for path in paths if (folder / path.format(0)).is_file()), paths[0])
    return {column: path.format(side) for side, column in enumerate(COLUMNS)}
