"""The official layout of NLVR2 (github.com/lil-lab/nlvr): JSON lines, and pictures that are named by the identifier."""

from __future__ import annotations

from pathlib import Path

from vlmgym.sandbox.datasets.rows import BadRow, Row, is_empty, shown
from vlmgym.sandbox.datasets.table import DerivedTable, Table

COLUMNS = ("left_image", "right_image")
"""As the hub's HuggingFaceM4/NLVR2 calls them."""


def has_nlvr2_layout(table: Table) -> bool:
    """Whether rows have an identifier and a sentence, but no pictures."""
    return {"identifier", "sentence"} <= set(table.columns) and not set(COLUMNS) & set(table.columns)


def with_nlvr2_pictures(table: Table, folder: Path) -> Table:
    """The table with the paths of both pictures.

    They are looked for in the folder, in `images`, and in both in a folder named as the split, where those of the
    training split stand in folders numbered by `directory`.

    Args:
        table: The JSON lines.
        folder: The folder that holds the pictures.
    """

    def derive(row: Row) -> Row:
        parts = str(row.get("identifier")).split("-")
        if len(parts) != 4 or not all(part.isalnum() for part in parts):
            raise BadRow(f"identifier is not split-set-pair-sentence but {shown(row.get('identifier'))}")
        split, prefix = parts[0], "-".join(parts[:3])
        places = [f"{place}{split}/" for place in ("", "images/")]
        if not is_empty(row.get("directory")):
            places = [f"{place}{row['directory']}/" for place in places] + places
        paths = [place + f"{prefix}-img{{}}.png" for place in (*places, "images/", "")]
        found = next((path for path in paths if (folder / path.format(0)).is_file()), paths[0])
        return {column: found.format(side) for side, column in enumerate(COLUMNS)}

    return DerivedTable(table, COLUMNS, derive, folder)
