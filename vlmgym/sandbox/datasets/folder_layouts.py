"""Known layouts of image folders: Hugging Face metadata, NLVR2 and OpenStreetView-5M."""

from __future__ import annotations

from pathlib import Path

from vlmgym.sandbox.datasets.rows import BadRow, Row, is_empty, shown, text_of
from vlmgym.sandbox.datasets.table import DerivedTable, Table

METADATA = "metadata"
"""Name of the table in a Hugging Face image folder; its column `file_name` holds paths."""
NLVR2_COLUMNS = ("left_image", "right_image")


def add_image_paths(table: Table, name: str) -> Table:
    """Add columns with image paths derived from other columns, if the layout of the folder is known.

    `name` is that of the file without the suffix, which is the split in the layout of OpenStreetView-5M.
    """
    columns, folder = set(table.columns), table.folder
    if folder is None:
        return table
    if {"identifier", "sentence"} <= columns and not columns.intersection(NLVR2_COLUMNS):
        return DerivedTable(table, NLVR2_COLUMNS, lambda row: _nlvr2_paths(row, folder))
    if "image" in columns:
        return table
    if {"id", "latitude", "longitude"} <= columns and (images := folder / "images" / name).is_dir():
        shards = sorted(path for path in images.iterdir() if path.is_dir())
        return DerivedTable(table, ("image",), lambda row: _osv5m_path(row, folder, images, shards))
    if name == METADATA and "file_name" in columns:
        return DerivedTable(table, ("image",), lambda row: {"image": row.get("file_name")})
    return table


def _nlvr2_paths(row: Row, folder: Path) -> Row:
    """Find both images of a row of NLVR2 as published (github.com/lil-lab/nlvr).

    They are in the folder or in `images`, directly or in a folder named by the split; training images are in folders
    numbered by `directory`.
    """
    parts = str(row.get("identifier")).split("-")
    if len(parts) != 4 or not all(part.isalnum() for part in parts):
        raise BadRow(f"identifier must be split-set-pair-sentence, got {shown(row.get('identifier'))}")
    split, pair = parts[0], "-".join(parts[:3])
    folders = [f"{split}/", f"images/{split}/"]
    if not is_empty(row.get("directory")):
        folders = [f"{parent}{row['directory']}/" for parent in folders] + folders
    paths = [f"{parent}{pair}-img{{}}.png" for parent in (*folders, "images/", "")]
    found = next((path for path in paths if (folder / path.format(0)).is_file()), paths[0])
    return {column: found.format(side) for side, column in enumerate(NLVR2_COLUMNS)}


def _osv5m_path(row: Row, folder: Path, images: Path, shards: list[Path]) -> Row:
    """Find the image of a row of OpenStreetView-5M (osv5m/osv5m on the Hub) in one of the numbered folders."""
    name = text_of(row, "id")
    if not name.isalnum():
        raise BadRow(f"id must be alphanumeric, got {shown(name)}")
    found = next((shard / f"{name}.jpg" for shard in shards if (shard / f"{name}.jpg").is_file()), None)
    return {"image": str((found or images / f"{name}.jpg").relative_to(folder))}
