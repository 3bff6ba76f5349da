"""Open datasets on the Hugging Face Hub and folders saved by `datasets`, and download files with fsspec."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from vlmgym.errors import UsageError, missing_extra
from vlmgym.sandbox.datasets.arrow import ArrowTable
from vlmgym.sandbox.datasets.cache import cached_file
from vlmgym.sandbox.datasets.download import BUCKETS
from vlmgym.sandbox.datasets.extra import download_failures, library, one_line
from vlmgym.sandbox.datasets.rows import Table

HUB_ID = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?(:(?P<config>[\w.-]+))?")
"""`owner/name`, optionally with `@revision` and `:config`."""
CONVERTED = "refs/convert/parquet"
"""Branch where the Hub keeps Parquet copies, used for datasets whose loading script `datasets` no longer runs."""


def open_hub(name: str, split: str | None) -> Table:
    """Open a split of a dataset on the Hub, downloading it to the `datasets` cache if needed.

    `split` may be None if there is only one.
    """
    found = HUB_ID.fullmatch(name)
    assert found is not None
    datasets = library("datasets", f"{name} on the Hub")
    constants = library("huggingface_hub.constants", f"{name} on the Hub")
    repo, config, revision = found["repo"], found["config"], found["revision"]
    try:
        try:
            loaded = datasets.load_dataset(repo, config, split=split, revision=revision)
        except RuntimeError as error:
            if revision is not None or "script" not in str(error):
                raise
            loaded = datasets.load_dataset(repo, config, split=split, revision=CONVERTED)
    except (*download_failures(), ValueError, RuntimeError, LookupError, datasets.exceptions.DatasetsError) as error:
        raise UsageError(f"cannot open {name!r} on the Hub: {one_line(error)}") from None
    return _table(loaded, split, name, Path(constants.HF_HOME))


def open_saved(folder: Path, split: str | None) -> Table:
    """Open a split of a folder written by `save_to_disk` of `datasets`; `split` may be None if there is only one."""
    datasets = library("datasets", f"the dataset saved in {folder}")
    try:
        loaded = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, LookupError) as error:
        raise UsageError(f"cannot open the dataset saved in {folder}: {one_line(error)}") from None
    return _table(loaded, split, str(folder), folder)


def _table(loaded: Any, split: str | None, name: str, folder: Path) -> Table:
    if isinstance(loaded, dict):  # a `DatasetDict`
        splits = sorted(loaded)
        if split is None and len(splits) == 1:
            split = splits[0]
        if split not in loaded:
            raise UsageError(f"{name} has the splits {', '.join(splits)}: choose one with split=..., got {split!r}")
        loaded = loaded[split]
    return ArrowTable(loaded.with_format("arrow")[:], folder, name)  # keeps images encoded and files mapped


def download_tables(url: str) -> list[Path]:
    """Download the file at a URL of any fsspec scheme (http, s3, gs, hf, ...), or all files that match a URL with `*`.

    Files are cached, and downloaded again when the server reports another size, date or ETag.
    """
    fsspec = library("fsspec", f"opening {url}")
    try:
        system, pattern = fsspec.core.url_to_fs(url)
        paths = sorted(system.glob(pattern)) if "*" in pattern else [pattern]
        if not paths:
            raise UsageError(f"no file matches {url}")
        return [_download(system, path) for path in paths]
    except Exception as error:  # each backend raises its own exceptions
        if isinstance(error, UsageError):
            raise
        if isinstance(error, ImportError) and (package := BUCKETS.get(url.partition(":")[0].lower())):
            raise missing_extra(f"opening {url}", package, "cloud") from None
        raise UsageError(f"cannot open {url}: {one_line(error)}") from None


def _download(system: Any, path: str) -> Path:
    suffix = PurePosixPath(path.partition("?")[0]).suffix
    key = f"{system.protocol} {path} {sorted(system.info(path).items())}"
    return cached_file("downloads", key, suffix, lambda part: system.get_file(path, str(part)))
