"""Rows of Arrow tables, and what Hugging Face writes beside them about their labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vlmgym.sandbox.datasets.rows import Row

Labels = Mapping[str, tuple[str, ...]]
"""Names of the classes by column, for columns that hold numbers of classes."""


def first_row(table: Any, labels: Labels) -> Row:
    """The only row of a `pyarrow.Table` as plain values, with classes by their names.

    The number of a class means nothing by itself: 0 is "True" in the hub's NLVR2. A class that is not known, such as
    the -1 of an unlabelled row, becomes None.
    """
    row: dict[str, Any] = table.to_pylist()[0]
    for column, names in labels.items():
        number = row.get(column)
        row[column] = names[number] if isinstance(number, int) and 0 <= number < len(names) else None
    return row


def labels_of(schema: Any) -> Labels:
    """The classes that a schema's metadata names, as `datasets` and the hub write them; none if there are none."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {
            column: tuple(feature["names"])
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError):
        return {}
