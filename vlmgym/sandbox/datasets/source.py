"""The rows of a table as the fields of a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from PIL import Image

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.images import decode, picture_bytes
from vlmgym.sandbox.datasets.rows import BadRow, Row, digest_of, is_empty, shown
from vlmgym.sandbox.datasets.table import Table

ID = "id"
"""The field that tells rows apart: only the first row with an id is good. Every task has it."""
ID_COLUMNS = ("identifier", "question_id", "uuid", "id")
"""Where it is looked for, and it is optional."""
MOST_COMPARED = 200_000
"""Rows whose ids are compared when data are opened; those of larger data by `vlmgym data check` alone."""


@dataclass(frozen=True)
class Reading:
    """What a task uses of one row.

    Attributes:
        fields: Values by field; None where the table has no such column. Pictures are not among them.
        pictures: The decoded pictures in RGB, in the order of the task's picture fields.
        digest: Hash of both.
    """

    fields: Row
    pictures: tuple[Image.Image, ...]
    digest: str


class Source:
    """A table whose columns are mapped to the fields of a task."""

    def __init__(
        self, table: Table, columns: Mapping[str, str | None], picture_fields: tuple[str, ...], urls: bool
    ) -> None:
        """Args:
        table: The rows.
        columns: Column by field, from `map_columns`.
        picture_fields: Which of the fields are pictures.
        urls: Whether pictures may be loaded from the network.
        """
        self.table = table
        self._columns = columns
        self._picture_fields = picture_fields
        self._urls = urls

    def __len__(self) -> int:
        return len(self.table)

    def read(self, index: int) -> Reading:
        """A row with its pictures, decoded because a damaged one is a bad row.

        Raises:
            BadRow: The row is not one, has the id of an earlier one, or a picture is missing or damaged.
        """
        row = self.table[index]
        if index in self._repeated:
            raise BadRow(repeated_id(_at(row, str(self.id_column)), self._repeated[index]))
        values = {field: None if column is None else _at(row, column) for field, column in self._columns.items()}
        blobs = [picture_bytes(values.pop(field), self.table.folder, self._urls) for field in self._picture_fields]
        return Reading(values, tuple(map(decode, blobs)), digest_of(values, blobs))

    @property
    def compares_ids(self) -> bool:
        """Whether a row that has the id of an earlier one is found to be bad here."""
        return self.id_column is not None and len(self) <= MOST_COMPARED

    @property
    def id_column(self) -> str | None:
        """The column of ids; None if there is none."""
        return self._columns[ID]

    def ids(self) -> Iterator[Any]:
        """The ids of all rows; None in a row that is bad or has none."""
        column = str(self.id_column)
        name = column if column in self.table.columns else column.partition(".")[0]
        return (_at({name: value}, column) for value in self.table.values(name))

    @cached_property
    def _repeated(self) -> Mapping[int, int]:
        """Rows whose id an earlier row has, and which."""
        if not self.compares_ids:
            return {}
        first: dict[str, int] = {}
        rows = ((row, first.setdefault(str(value), row)) for row, value in enumerate(self.ids()) if not is_empty(value))
        return {row: earlier for row, earlier in rows if earlier != row}


def repeated_id(value: Any, earlier: int) -> str:
    """What is wrong with a row whose id an earlier row has."""
    return f"its id {shown(value)} is that of row {earlier}, too"


def map_columns(
    names: Mapping[str, tuple[str, ...]], optional: frozenset[str], chosen: tuple[str, ...], table: Table, data: str
) -> dict[str, str | None]:
    """The column of each field.

    Args:
        names: Names under which each field is looked for; the first that the table has is taken. The field `id` is
            added.
        optional: Fields that a table may lack.
        chosen: The user's mapping, as texts `field=column`; `field=column.key` and `field=column.0` look into a column
            of objects or lists, and `field=` leaves out a field that may be lacking.
        table: The table.
        data: What the user named, for messages.

    Raises:
        UsageError: A field has no column, or the mapping names a field or a column that is not there.
    """
    names, optional = {ID: ID_COLUMNS, **names}, optional | {ID}
    there = f"the columns of {data} are {', '.join(table.columns)}"
    columns: dict[str, str | None] = {}
    for text in chosen:
        field, equals, column = text.partition("=")
        if not equals or field not in names:
            raise UsageError(f"columns are FIELD=COLUMN with a field of {', '.join(names)}, not {text!r}")
        if not column and field in optional:
            columns[field] = None
            continue
        if column not in table.columns and column.partition(".")[0] not in table.columns:
            raise UsageError(f"there is no column {column!r} for {field}: {there}")
        columns[field] = column
    for field, candidates in names.items():
        found = columns.setdefault(field, next((name for name in candidates if name in table.columns), None))
        if found is None and field not in optional:
            raise UsageError(f"there is no column for {field} ({' or '.join(candidates)}): {there}; map one by columns")
    return columns


def _at(row: Row, column: str) -> Any:
    """The value of a column, or what a path such as `images.0` leads to in it; None if that is not there."""
    if column in row:
        return row[column]
    name, *path = column.split(".")
    value = row.get(name)
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
