"""Open OpenStreetView-5M folders in the published layout (osv5m/osv5m on the Hub)."""

from __future__ import annotations

from pathlib import Path

from vlmgym.errors import UsageError, short_repr
from vlmgym.sandbox.data.rows import BadRow, DataRow, text_of
from vlmgym.sandbox.data.tables import HUB_ID, Table, open_table

OSV5M = "osv5m/osv5m"


def open_osv5m(data: str, split: str | None) -> Table:
    """Open a table; if it is an OpenStreetView-5M table in a local folder, add the paths of its images.

    The images are `images/SPLIT/NN/ID.jpg`, where SPLIT is the name of the table's file without its extension.
    """
    match = HUB_ID.fullmatch(data)
    if match is not None and match["repo"] == OSV5M and not Path(data).expanduser().exists():
        raise UsageError(f"{data} is hundreds of GB of zip files; `vlmgym data fetch osv5m` downloads part of it")
    table = open_table(data, split)
    folder, columns = table.folder, set(table.columns)
    if folder is None or not table.stem or not columns >= {"id", "latitude", "longitude"} or "image" in columns:
        return table
    images = folder / "images" / table.stem
    if not images.is_dir():
        return table
    shards = sorted(path for path in images.iterdir() if path.is_dir())
    return table.with_columns(("image",), lambda row: _image_path(row, folder, images, shards))


def _image_path(row: DataRow, folder: Path, images: Path, shards: list[Path]) -> dict[str, str]:
    """Find a row's image in the numbered folders; return its path relative to `folder` as the column `image`.

    If there is no such image, the path points to a missing file.
    """
    name = text_of(row, "id")
    if not name.isalnum():
        raise BadRow(f"id must be alphanumeric, got {short_repr(name)}")
    path = next((shard / f"{name}.jpg" for shard in shards if (shard / f"{name}.jpg").is_file()), None)
    return {"image": str((path or images / f"{name}.jpg").relative_to(folder))}
