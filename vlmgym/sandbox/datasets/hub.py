"""Tables of Hugging Face `datasets`: from the hub, or from a folder where one was saved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.arrow import ArrowRow, plain_values
from vlmgym.sandbox.datasets.extra import download_failures, library, one_line
from vlmgym.sandbox.datasets.osv5m import REPO as OSV5M
from vlmgym.sandbox.datasets.rows import Row
from vlmgym.sandbox.datasets.table import Table, columns_once

HUB_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?(:(?P<config>[\w.-]+))?")
"""`owner/name`, and if wanted `@revision` and `:config`."""
CONVERTED = "refs/convert/parquet"
"""Where the hub keeps a copy in Parquet of data that come with a loading script, which `datasets` no longer runs."""


class HubTable(Table):
    """A split of `datasets.Dataset`; its Arrow files are mapped into memory."""

    def __init__(self, dataset: Any, folder: Path | None) -> None:
        """Args:
        dataset: A `datasets.Dataset`.
        folder: As `Table.folder`.
        """
        self.columns = columns_once(dataset.column_names, "the data set")
        self.folder = folder
        features = dataset.features.items()
        self._labels = {name: tuple(kind.names) for name, kind in features if type(kind).__name__ == "ClassLabel"}
        self._rows = dataset.with_format("arrow")  # pictures stay encoded

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        return ArrowRow(self._rows[index : index + 1], self._labels)

    def values(self, column: str) -> Iterator[Any]:
        """As `Table.values`, reading nothing but the column."""
        for batch in self._rows.select_columns([column]).iter(10_000):
            yield from plain_values(batch.column(0))


def open_hub(name: str, split: str | None) -> Table:
    """A split of data on the hub, downloaded by `datasets` unless it is in its cache.

    Args:
        name: An id, see `HUB_ID`.
        split: Name of the split; may be None where there is only one.

    Raises:
        UsageError: There is no such data or split, or it cannot be downloaded.
    """
    found = HUB_ID.fullmatch(name)
    if found is None:
        raise UsageError(f"{name!r} is not a hub id: owner/name, and if wanted @revision and :config")
    if found["repo"] == OSV5M:
        raise UsageError(f"{name} is hundreds of GB of zip files: `vlmgym data fetch osv5m` gets as many as you want")
    datasets = library("datasets", f"the hub's data {name}")
    constants = library("huggingface_hub.constants", f"the hub's data {name}")
    repo, config, revision = found["repo"], found["config"], found["revision"]
    try:
        try:
            loaded = datasets.load_dataset(repo, config, split=split, revision=revision)
        except RuntimeError as error:
            if revision is not None or "script" not in str(error):
                raise
            loaded = datasets.load_dataset(repo, config, split=split, revision=CONVERTED)
    except (*download_failures(), ValueError, RuntimeError, LookupError, datasets.exceptions.DatasetsError) as error:
        raise UsageError(f"the hub's data {name!r} cannot be opened: {one_line(error)}") from None
    return HubTable(_one_split(loaded, split, name), Path(constants.HF_HOME))


def open_saved(folder: Path, split: str | None) -> Table:
    """A split of data that `save_to_disk` of `datasets` wrote.

    Raises:
        UsageError: There is no such split, or the folder cannot be read.
    """
    datasets = library("datasets", f"the saved data {folder}")
    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, LookupError) as error:
        raise UsageError(f"the saved data {folder} cannot be opened: {one_line(error)}") from None
    return HubTable(_one_split(loaded, split, str(folder)), folder)


def _one_split(loaded: Any, split: str | None, name: str) -> Any:
    if not isinstance(loaded, dict):  # a `datasets.DatasetDict` is a dict
        return loaded
    splits = sorted(loaded)
    if split is None and len(splits) == 1:
        return loaded[splits[0]]
    if split not in loaded:
        raise UsageError(f"{name} has the splits {', '.join(splits)}: choose one by split=..., not {split!r}")
    return loaded[split]
