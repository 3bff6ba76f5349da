"""The layout of OpenStreetView-5M (hub osv5m/osv5m): a CSV file a split, and pictures in numbered folders.

test.csv            id, latitude, longitude, country, region, sub-region, city ...
images/test/00/     1234567890.jpg ...; on the hub each of these folders is a zip file
"""

from __future__ import annotations

from pathlib import Path

from vlmgym.sandbox.datasets.rows import BadRow, Row, shown, text_of
from vlmgym.sandbox.datasets.table import DerivedTable, Table

REPO = "osv5m/osv5m"
PICTURES = "images"


def has_osv5m_layout(table: Table, folder: Path, split: str) -> bool:
    """Whether rows have an id and a place, but no picture, and there is a folder of pictures of the split."""
    columns = set(table.columns)
    return (
        {"id", "latitude", "longitude"} <= columns and "image" not in columns and (folder / PICTURES / split).is_dir()
    )


def with_osv5m_pictures(table: Table, folder: Path, split: str) -> Table:
    """The table with the column `image`: the path of the row's picture, found in whichever numbered folder it is."""
    pictures = folder / PICTURES / split
    shards = sorted(entry for entry in pictures.iterdir() if entry.is_dir())

    def derive(row: Row) -> Row:
        name = text_of(row, "id")
        if not name.isalnum():
            raise BadRow(f"id is {shown(name)}, which names no picture")
        found = next((shard / f"{name}.jpg" for shard in shards if (shard / f"{name}.jpg").is_file()), None)
        return {"image": str((found or pictures / f"{name}.jpg").relative_to(folder))}

    return DerivedTable(table, ("image",), derive, folder)
