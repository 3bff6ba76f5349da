"""Tables from files, folders, URLs and the Hub, and the fields and images that a task reads from their rows.

Text files (CSV, JSON) and folders of images are read with the standard library, anything else by `datasets`.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import os
import re
from codecs import BOM_UTF8
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmgym.errors import UsageError, first_line, importing, one_line, short_repr, truncate
from vlmgym.sandbox.data.images import decode, image_bytes, read_url
from vlmgym.sandbox.data.rows import BadRow, DataRow, content_hash, is_empty

MAX_TEXT_BYTES = 1 << 30
"""Maximum size of a CSV or JSON file, which is read into memory."""
URL_SECONDS = 3600.0
"""Maximum duration of the download of a CSV or JSON file."""
MAX_CSV_VALUE = 1 << 26  # characters; a value may be an image as a data URL
ROWS_SCANNED = 100  # rows whose keys become the columns of a JSON table
METADATA = "metadata"
"""Name of the table file in a Hugging Face image folder. Its column `file_name` holds paths."""
SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".json")
SAVED = ("dataset_dict.json", "state.json")
"""Files that mark a folder saved by `datasets`."""
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
HUB_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?(:(?P<config>[\w.-]+))?")
"""`owner/name`, optionally with `@revision` and `:config`."""
CONVERTED = "refs/convert/parquet"
"""Branch where the Hub keeps Parquet copies, used for datasets with a loading script, which `datasets` never runs."""
ID = "id"
"""Optional field of every task; `vlmgym data check` reports repeated ids."""
ID_COLUMNS = ("identifier", "question_id", "uuid", "id")


class Table(Sequence[DataRow]):
    """A sequence of rows. Reading a malformed row raises `BadRow`.

    Attributes:
        columns: Column names. JSON rows may have different keys; the columns come from the first rows.
        folder: Folder that image paths are relative to and must stay inside; None if paths are not allowed.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        rows: Sequence[Any],
        read: Callable[[Any], DataRow],
        folder: Path | None = None,
    ) -> None:
        """Make a table whose row at `index` is `read(rows[index])`."""
        self.columns, self.folder = columns, folder
        self._rows, self._read = rows, read

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._rows[index])

    def values(self, column: str) -> Iterator[Any]:
        """Yield the values of a column from the first row to the last; None where a row is bad or has no value."""
        if isinstance(self._rows, Table) and column in self._rows.columns:
            yield from self._rows.values(column)
            return
        for index in range(len(self)):
            try:
                yield self[index].get(column)
            except BadRow:
                yield None

    def with_columns(self, new_columns: tuple[str, ...], derive: Callable[[DataRow], dict[str, Any]]) -> Table:
        """Add columns computed from the others, such as an image path computed from an id; `derive` may raise."""
        columns = (*self.columns, *new_columns)
        return Table(columns, self, lambda row: ChainMap(derive(row), cast(Any, row)), self.folder)


class ArrowTable(Table):
    """Rows of a `datasets.Dataset`, usually a memory-mapped file. Values are converted when they are used.

    Class labels become the names of their classes at any depth, because a number alone is ambiguous: 0 is "True" in the
    Hub's NLVR2. A label without a name, such as -1 for unlabelled rows, becomes None.
    """

    def __init__(self, dataset: Any, folder: Path | None) -> None:
        self._features = dataset.features
        self._data = dataset.with_format("arrow")  # keeps images encoded and files mapped
        self.cache_files = dataset.cache_files
        super().__init__(tuple(dataset.column_names), self._data, lambda row: _ArrowRow(row, self._features), folder)

    def values(self, column: str) -> Iterator[Any]:
        """See `Table.values`. Reads only this column."""
        for batch in self._data.select_columns([column]).iter(1000):
            for scalar in batch[column]:
                try:
                    yield _python_value(scalar, self._features[column], column)
                except BadRow:
                    yield None


class _ArrowRow(Mapping[str, Any]):
    """A row that converts each value on access, so that unused columns cost nothing and may be malformed."""

    def __init__(self, row: Any, features: Mapping[str, Any]) -> None:
        self._row, self._features = row, features

    def __getitem__(self, column: str) -> Any:
        return _python_value(self._row[column][0], self._features[column], column)

    def __contains__(self, column: object) -> bool:
        return column in self._features

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)


def _python_value(scalar: Any, feature: Any, column: str) -> Any:
    try:
        return _with_class_names(scalar.as_py(), feature)
    except (ValueError, OverflowError, NotImplementedError) as error:  # e.g. text that is not UTF-8
        raise BadRow(f"{column} cannot be read: {first_line(error)}") from None


def _with_class_names(value: Any, feature: Any) -> Any:
    """Replace the numbers of classes in a value of a `datasets` feature with their names."""
    if (names := getattr(feature, "names", None)) is not None:  # a `ClassLabel`
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None
    if isinstance(value, dict) and isinstance(feature, Mapping):
        return {key: _with_class_names(item, feature.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
        return [_with_class_names(item, inner) for item in value]
    return value


# Opening --------------------------------------------------------------------------------------------------------------


def open_table(data: str, split: str | None = None) -> Table:
    """Open a file, a folder, a URL or a dataset on the Hub.

    Tables are cached in the process until their local files change.
    """
    path = Path(data).expanduser()
    try:
        return _open(data, path, split, _versions(path, split))
    except OSError as error:
        raise UsageError(f"cannot read {data}: {error.strerror or one_line(str(error))}") from None


def _versions(path: Path, split: str | None) -> tuple[tuple[str, int, int], ...]:
    """Size and modification time of all local files and folders from which the data may be read."""
    paths = [path]
    for folder in (path, path / "data", *([path / split] if split else [])):
        if folder.is_dir():
            paths += [entry for entry in folder.iterdir() if entry.suffix in SUFFIXES or entry.is_dir()]
    stats = ((str(entry), entry.stat()) for entry in sorted(paths) if entry.exists())
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


@lru_cache(maxsize=8)
def _open(data: str, path: Path, split: str | None, versions: object) -> Table:
    if path.is_dir():
        return _open_folder(path, split)
    if path.is_file() or "://" in data:
        if split is not None:
            raise UsageError(f"{data} is a single file or URL and has no split {split!r}: name the file of the split")
        return _open_files([path], path.parent) if path.is_file() else _open_url(data)
    if HUB_ID.fullmatch(data) and path.suffix not in SUFFIXES:
        return _open_hub(data, split)
    raise UsageError(f"there is no file or folder {data!r}, and it is not a Hub id (owner/name)")


def _open_folder(folder: Path, split: str | None) -> Table:
    if any((folder / name).is_file() for name in SAVED):
        with _using_datasets(f"the dataset saved in {folder}") as datasets:
            table = _split_of(datasets.load_from_disk(str(folder)), split, str(folder), folder)
        files = [Path(file["filename"]) for file in table.cache_files]
        if not all(file.resolve().is_relative_to(folder.resolve()) for file in files):
            raise UsageError(f"the dataset saved in {folder} refers to a file outside the folder")
        return table
    if split is not None:
        files = _table_files(folder, split) or _table_files(folder / "data", split)
        if not files and (folder / split).is_dir():
            return _open_folder(folder / split, None)
        if not files:
            raise UsageError(f"{folder} has no split {split!r}: there is no table file or folder with that name")
        return _open_files(files, folder)
    files = _table_files(folder, METADATA) or _table_files(folder) or _table_files(folder / "data")
    return _open_files(files, folder) if files else _open_images(folder)


def _table_files(folder: Path, stem: str | None = None) -> list[Path]:
    """List the table files of a folder; with a stem, only `STEM.*` or its shards (`STEM-00000-of-00003.parquet`)."""
    return [
        path
        for path in sorted(folder.glob("*"))
        if path.suffix in SUFFIXES and (stem is None or path.stem == stem or path.name.startswith(f"{stem}-"))
    ]


def _open_files(files: list[Path], folder: Path) -> Table:
    """Open one table file of any kind, or several Parquet files; image paths are relative to `folder`."""
    path = files[0]
    if {file.suffix for file in files} == {".parquet"}:
        table = _open_parquet([str(file) for file in files], str(path), folder)
    elif len(files) > 1:
        names = ", ".join(path.name for path in files[:5]) + (" ..." if len(files) > 5 else "")
        raise UsageError(f"{folder} has several tables ({names}): name one as data=..., or set split=...")
    else:
        with path.open("rb") as file:
            table = _parse_text(file.read(MAX_TEXT_BYTES + 1), path.suffix, str(path))
    table.folder = folder
    if path.stem == METADATA and "file_name" in table.columns and "image" not in table.columns:
        return table.with_columns(("image",), lambda row: {"image": row.get("file_name")})
    return table


def _open_images(folder: Path) -> Table:
    """Open a folder of one folder per class; the columns are `image`, a path, and `label`, the name of the class."""
    labels = sorted(path.name for path in folder.iterdir() if path.is_dir())
    files = ((label, name) for label in labels for name in sorted(os.listdir(folder / label)))
    paths = [f"{label}/{name}" for label, name in files if name.lower().endswith(IMAGE_SUFFIXES)]
    if not paths:
        raise UsageError(f"{folder} has neither a table ({', '.join(SUFFIXES)}) nor folders of images")
    return Table(("image", "label"), paths, lambda path: {"image": path, "label": path.partition("/")[0]}, folder)


def _open_url(url: str) -> Table:
    """Open a text file, a Parquet file, or all Parquet files that match a URL with `*`."""
    suffix = PurePosixPath(url.partition("?")[0]).suffix
    if suffix == ".parquet":
        return _open_parquet([url], url, None)
    try:
        return _parse_text(read_url(url, MAX_TEXT_BYTES, URL_SECONDS), suffix, url)
    except BadRow as error:
        raise UsageError(f"cannot open {url}: {error}") from None


def _open_parquet(files: list[str], name: str, folder: Path | None) -> Table:
    """Open Parquet files, which must have the same columns, as one table."""
    with _using_datasets(name) as datasets:
        patterns = files if folder is None else list(map(glob.escape, files))
        loaded = datasets.load_dataset(
            "parquet", data_files=patterns, split="train", cache_dir=str(cache_folder("datasets"))
        )
        return ArrowTable(loaded, folder)


def _open_hub(name: str, split: str | None) -> Table:
    """Open a split of a dataset on the Hub, downloading it to the `datasets` cache if needed."""
    match = HUB_ID.fullmatch(name)
    assert match is not None
    repo, config, revision = match["repo"], match["config"], match["revision"]
    with _using_datasets(f"{name!r} on the Hub") as datasets:
        try:
            loaded = datasets.load_dataset(repo, config, split=split, revision=revision)
        except RuntimeError as error:
            if revision is not None or "script" not in str(error):
                raise
            loaded = datasets.load_dataset(repo, config, split=split, revision=CONVERTED)
        return _split_of(loaded, split, name, Path(datasets.config.HF_CACHE_HOME))


def _split_of(loaded: Any, split: str | None, name: str, folder: Path) -> ArrowTable:
    """Return a split of what `datasets` loaded; `split` may be None if there is only one."""
    if isinstance(loaded, dict):  # a `DatasetDict`
        splits = sorted(loaded)
        if split is None and len(splits) == 1:
            split = splits[0]
        if split not in loaded:
            raise UsageError(f"{name} has the splits {', '.join(splits)}: choose one with split=..., got {split!r}")
        loaded = loaded[split]
    return ArrowTable(loaded, folder)


@contextmanager
def _using_datasets(name: str) -> Iterator[Any]:
    """Import `datasets` and raise a `UsageError` if it cannot open `name`."""
    with importing(f"opening {name}", "data"):
        import datasets
    try:
        yield datasets
    except UsageError:
        raise
    except Exception as error:  # of the storage, the format, or the Hub
        if isinstance(error.__cause__, Exception):  # "An error occurred while generating the dataset"
            error = error.__cause__
        raise UsageError(f"cannot open {name}: {truncate(one_line(str(error)), 200) or type(error).__name__}") from None


def cache_folder(purpose: str) -> Path:
    """Create and return folder `purpose` in `$VLMGYM_CACHE`, else `$XDG_CACHE_HOME/vlmgym`, else `~/.cache/vlmgym`."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vlmgym"
    folder = Path(os.environ.get("VLMGYM_CACHE") or default) / purpose
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# Text -----------------------------------------------------------------------------------------------------------------


def _parse_text(content: bytes, suffix: str, name: str) -> Table:
    """Open the content of a CSV or JSON file."""
    if len(content) > MAX_TEXT_BYTES:
        raise UsageError(f"{name} is larger than {MAX_TEXT_BYTES >> 20} MB: save it as Parquet")
    content = content.removeprefix(BOM_UTF8)
    if suffix in (".csv", ".tsv"):
        return _parse_csv(content, "," if suffix == ".csv" else "\t", name)
    if suffix in (".jsonl", ".json"):
        return _parse_json(content, name)
    raise UsageError(f"{name} is not a known kind of file: {', '.join(SUFFIXES)}")


def _parse_csv(content: bytes, delimiter: str, name: str) -> Table:
    """Open CSV (RFC 4180) whose first line names the columns. All values are strings."""
    if content.count(b'"') % 2:
        raise UsageError(f"{name} has an odd number of double quotes: one is not closed, or not doubled inside")
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CSV_VALUE))
    text = io.StringIO(content.decode(errors="surrogateescape"), newline="")  # `text_of` rejects surrogates
    try:
        lines = [line for line in csv.reader(text, delimiter=delimiter) if any(map(str.strip, line)) or len(line) > 1]
    except csv.Error as error:
        raise UsageError(f"{name} is not CSV: {error}") from None
    if not lines:
        raise UsageError(f"{name} is empty: its first line must name the columns")
    columns = tuple(lines.pop(0))
    if len(set(columns)) < len(columns):
        raise UsageError(f"{name} has two columns with the same name: {', '.join(columns)}")

    def read(values: list[str]) -> DataRow:
        if len(values) != len(columns):
            raise BadRow(f"the line has {len(values)} values for {len(columns)} columns")
        return dict(zip(columns, values))

    return Table(columns, lines, read)


def _parse_json(content: bytes, name: str) -> Table:
    """Open JSON objects: one per line, or an array."""
    is_array = content[: 1 << 16].lstrip().startswith(b"[")
    try:
        lines = (line for line in content.split(b"\n") if line.strip())
        rows: Sequence[Any] = json.loads(content) if is_array else list(lines)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from None

    def read(value: Any) -> DataRow:
        try:
            value = value if is_array else json.loads(value)
        except (ValueError, RecursionError) as error:
            raise BadRow(f"the line is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise BadRow(f"expected a JSON object, got {short_repr(value)}")
        return value

    names: dict[str, None] = {}
    for value in rows[:ROWS_SCANNED]:
        with suppress(BadRow):  # reported when the row is read
            names.update(dict.fromkeys(read(value)))
    if not names:
        raise UsageError(f"{name} has no JSON object in its first {ROWS_SCANNED} rows")
    return Table(tuple(names), rows, read)


# Rows as a task reads them --------------------------------------------------------------------------------------------


class Example(NamedTuple):
    """Fields and decoded RGB images of a row, and a hash of its fields and encoded images. A missing field is None."""

    fields: DataRow
    images: tuple[Image.Image, ...]
    digest: str


class Source:
    """A table whose columns are mapped to the fields of a task.

    `columns` maps each field to its column, as returned by `map_columns`. With `urls`, images are loaded from URLs.
    """

    def __init__(
        self, table: Table, columns: Mapping[str, str | None], image_fields: tuple[str, ...], urls: bool = False
    ) -> None:
        self.table = table
        self._columns = columns
        self._image_fields = image_fields
        self._urls = urls

    def __len__(self) -> int:
        return len(self.table)

    def read(self, index: int) -> Example:
        """Read a row and decode its images; raise `BadRow` if an image cannot be decoded."""
        row = self.table[index]
        fields = {field: None if column is None else _lookup(row, column) for field, column in self._columns.items()}
        encoded = [image_bytes(fields.pop(field), self.table.folder, self._urls) for field in self._image_fields]
        return Example(fields, tuple(map(decode, encoded)), content_hash(fields, encoded))

    def read_id(self, index: int) -> str | None:
        """Read the id of a row as text; None if it has none."""
        label = None if (column := self._columns[ID]) is None else _lookup(self.table[index], column)
        return None if is_empty(label) else str(label)

    @cached_property
    def shuffled(self) -> NDArray[np.int64]:
        """All row indices in a fixed pseudorandom order."""
        return np.random.default_rng(0).permutation(len(self))


def map_columns(
    names: Mapping[str, tuple[str, ...]], optional: frozenset[str], choices: tuple[str, ...], table: Table, data: str
) -> dict[str, str | None]:
    """Return the column of each field, or None for an optional field without a column; add the field `id`.

    Args:
        names: Accepted column names of each field; the first one in the table is used.
        optional: Fields that may lack a column.
        choices: The user's choices, `FIELD=COLUMN`, which take precedence. `field=column.key` and `field=column.0` look
            into objects and lists, and a key into each object of a list; `field=` drops an optional field.
        table: The table.
        data: Name of the data in error messages.

    Raises:
        UsageError: A choice is invalid, or a required field has no column.
    """
    names, optional = {ID: ID_COLUMNS, **names}, optional | {ID}
    existing = f"the columns of {data} are {', '.join(table.columns)}"
    columns: dict[str, str | None] = {}
    for text in choices:
        field, equals, column = text.partition("=")
        if not equals or field not in names:
            raise UsageError(f"columns must be FIELD=COLUMN with a field of {', '.join(names)}, got {text!r}")
        if not column and field in optional:
            columns[field] = None
            continue
        if column not in table.columns and column.partition(".")[0] not in table.columns:
            raise UsageError(f"there is no column {column!r} for {field}: {existing}")
        columns[field] = column
    for field, candidates in names.items():
        columns.setdefault(field, next((name for name in candidates if name in table.columns), None))
        if columns[field] is None and field not in optional:
            raise UsageError(
                f"there is no column for {field} ({' or '.join(candidates)}): {existing}; choose one with columns="
            )
    return columns


def _lookup(row: DataRow, column: str) -> Any:
    """Read a column of a row, following the keys and list indices after dots; None if any of these is missing.

    A key of a list is looked up in each object of the list.
    """
    if column in row:
        return row[column]
    name, *path = column.split(".")
    value = row.get(name)
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, list | tuple) and not part.isdecimal():
            value = [item.get(part) for item in value if isinstance(item, Mapping)]
        else:
            return None
    return value
