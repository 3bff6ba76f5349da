"""Arrow tables: Parquet files, and data loaded by the `datasets` library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.cache import cached_file
from vlmgym.sandbox.datasets.extra import library, one_line
from vlmgym.sandbox.datasets.rows import BadRow, DataRow, Table, unique_columns

BATCH_BYTES = 1 << 23
"""Approximate size of a record batch in an Arrow file, in bytes."""
MAX_BATCH_ROWS = 1 << 16


class ArrowTable(Table):
    """Rows of a `pyarrow.Table`, which is usually a memory-mapped file.

    Class labels are replaced with their names, because a number alone is ambiguous: 0 is "True" in the Hub's NLVR2.
    A label without a name, such as -1 for unlabelled rows, becomes None.
    """

    def __init__(self, table: Any, folder: Path | None, data: object) -> None:
        """Wrap a `pyarrow.Table`; `data` is its name in error messages."""
        self.columns = unique_columns(table.column_names, data)
        self.folder = folder
        self._table = table
        self._class_names = _class_names(table.schema)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> DataRow:
        return _ArrowRow(self, index)

    def values(self, column: str) -> Iterator[Any]:
        """See `Table.values`. Reads only this column; class labels are yielded as numbers."""
        for scalar in self._table.column(column):
            try:
                yield _python_value(scalar, column)
            except BadRow:
                yield None

    def value(self, index: int, column: str) -> Any:
        """Read the value of a column in the row at `index`; class labels become names."""
        value = _python_value(self._table.column(column)[index], column)
        names = self._class_names.get(column)
        if names is None:
            return value
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


class _ArrowRow(Mapping[str, Any]):
    """A row that converts each value on access, so that unused columns cost nothing and may be malformed."""

    def __init__(self, table: ArrowTable, index: int) -> None:
        self._table, self._index = table, index

    def __getitem__(self, column: str) -> Any:
        if column not in self._table.columns:
            raise KeyError(column)
        return self._table.value(self._index, column)

    def __contains__(self, column: object) -> bool:
        return column in self._table.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.columns)

    def __len__(self) -> int:
        return len(self._table.columns)


def open_parquet(paths: Sequence[Path], folder: Path | None) -> Table:
    """Open Parquet files, which must have the same columns, as one table.

    Parquet can only be decoded in whole row groups. Each file is therefore converted once to a cached Arrow file, which
    is memory-mapped and gives access to single rows.
    """
    pa = library("pyarrow", "reading Parquet")
    parts = []
    try:
        for path in paths:
            parts.append(pa.ipc.open_stream(pa.memory_map(str(_arrow_copy(path)))).read_all())
            if parts[-1].column_names != parts[0].column_names:
                raise UsageError(f"{path} has different columns from {paths[0]}")
        unique_columns(parts[0].column_names, paths[0])  # before concatenating, which cannot align repeated names
        return ArrowTable(pa.concat_tables(parts, promote_options="permissive"), folder, paths[0])
    except (pa.ArrowException, OSError) as error:
        raise UsageError(f"{path} cannot be read as Parquet: {one_line(error)}") from None


def _arrow_copy(path: Path) -> Path:
    pa, parquet = library("pyarrow", "reading Parquet"), library("pyarrow.parquet", "reading Parquet")
    stat = path.stat()

    def write(copy: Path) -> None:
        with parquet.ParquetFile(path) as file:
            size = sum(file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
            rows = min(max(1, BATCH_BYTES * file.metadata.num_rows // max(size, 1)), MAX_BATCH_ROWS)
            with pa.OSFile(str(copy), "wb") as sink, pa.ipc.new_stream(sink, file.schema_arrow) as writer:
                for batch in file.iter_batches(rows):
                    writer.write_batch(batch)

    return cached_file("arrow", f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}", ".arrow", write)


def _class_names(schema: Any) -> Mapping[str, tuple[str, ...]]:
    """Class names of each column that has them, from the schema metadata written by `datasets` and the Hub."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {
            column: tuple(feature["names"])
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError):
        return {}


def _python_value(scalar: Any, column: str) -> Any:
    try:
        return scalar.as_py()
    except (library("pyarrow", "reading Arrow").ArrowException, ValueError, OverflowError) as error:
        raise BadRow(f"{column} cannot be read: {one_line(error)}") from None
