"""Rows of Arrow tables, and what Hugging Face writes beside them about their labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from vlmgym.sandbox.datasets.extra import library, one_line
from vlmgym.sandbox.datasets.rows import BadRow

Labels = Mapping[str, tuple[str, ...]]
"""Names of the classes by column, for columns that hold numbers of classes."""


class ArrowRow(Mapping[str, Any]):
    """The only row of a `pyarrow.Table` as plain values, with classes by their names.

    A value is made when it is asked for, so that a column nobody asks for costs nothing, and may hold what it likes.

    The number of a class means nothing by itself: 0 is "True" in the hub's NLVR2. A class that is not known, such as
    the -1 of an unlabelled row, becomes None.
    """

    def __init__(self, table: Any, labels: Labels) -> None:
        self._table = table
        self._labels = labels
        self._names: tuple[str, ...] = tuple(table.column_names)

    def __getitem__(self, column: str) -> Any:
        """The value of a column.

        Raises:
            BadRow: It has no form in Python, such as a text that is not UTF-8, or a date after the year 9999.
        """
        if column not in self._names:
            raise KeyError(column)
        value = _plain(self._table.column(column)[0], column)
        names = self._labels.get(column)
        if names is None:
            return value
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None

    def __contains__(self, column: object) -> bool:
        return column in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def plain_values(column: Any) -> Iterator[Any]:
    """The values of a column of Arrow; None for one that has no form in Python."""
    for value in column:
        try:
            yield _plain(value, "")
        except BadRow:
            yield None


def _plain(value: Any, column: str) -> Any:
    try:
        return value.as_py()
    except (library("pyarrow", "reading Arrow").ArrowException, ValueError, OverflowError) as error:
        raise BadRow(f"{column} cannot be read: {one_line(error)}") from None


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
