"""What `vlmgym data` does: look through the rows that a task would ask about, and download large data sets."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from vlmgym.errors import UsageError
from vlmgym.options import GameOptions
from vlmgym.sandbox.datasets.osv5m_fetch import fetch_osv5m
from vlmgym.sandbox.datasets.rows import BadRow, is_empty, shown
from vlmgym.sandbox.datasets.table import Table
from vlmgym.sandbox.task import Task

ID_COLUMNS = ("id", "identifier", "uuid", "question_id")
"""Columns that are looked through for duplicates unless another is named."""


@dataclass(frozen=True, kw_only=True)
class DataCheckConfig(GameOptions):
    """Look through data as a task would: decode every picture, and name every bad row and duplicate id."""

    game: tyro.conf.Positional[str]
    """Id or name of the task; the data are named by --set data=..."""
    rows: int | None = None
    """Only so many rows, from the first. Default: all."""
    id_column: str | None = None
    """The column whose values tell rows apart. Default: id, identifier, uuid or question_id, if there is one."""


@dataclass(frozen=True, kw_only=True)
class DataFetchConfig:
    """Download a data set that is too large or too unusual for `data=` alone; what is there is not loaded again."""

    dataset: tyro.conf.Positional[Literal["osv5m"]]
    """osv5m: OpenStreetView-5M, 5 million street views with their places (hub osv5m/osv5m)."""
    out: Path
    """The folder to put it in."""
    split: Literal["test", "train"] = "test"
    """The part: test has 210,122 pictures in 5 shards, train 4.9 million in 98."""
    shards: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Only the first so many shards, of about 50,000 pictures each. Default: all."""


def check_data(config: DataCheckConfig) -> None:
    """Print every bad row and a summary; exit with 1 if there is a bad row.

    Raises:
        UsageError: There is no such task, or its data cannot be opened.
    """
    game = config.make_game(config.game)
    if not isinstance(game, Task):
        raise UsageError(f"{game.name} is no task over data")
    if config.rows is not None and config.rows < 1:
        raise UsageError(f"rows is at least 1, not {config.rows}")
    source = game.source
    count = len(source) if config.rows is None else min(config.rows, len(source))
    repeated = {} if source.compares_ids else _repeated(source.table, _id_column(source.table, config.id_column), count)
    bad = 0
    for index in track(range(count), "rows", console=Console(stderr=True), transient=True):
        try:
            if index in repeated:
                raise BadRow(repeated[index])
            game.read_row(index)
        except BadRow as error:
            bad += 1
            print(f"row {index}: {error}")
    print(f"{count} of {len(source)} rows looked at: {count - bad} good, {bad} bad")
    if bad:
        raise SystemExit(1)


def fetch_data(config: DataFetchConfig) -> None:
    """Download, and say what to play with.

    Raises:
        UsageError: The number of shards is not acceptable, or what the hub has is refused.
        InfrastructureError: The hub does not answer.
    """
    if config.shards is not None and config.shards < 1:
        raise UsageError(f"shards is at least 1, not {config.shards}")
    table = fetch_osv5m(config.out, config.split, config.shards)
    print(f"Play it: vlmgym eval geospot --set data={table}")


def _id_column(table: Table, chosen: str | None) -> str | None:
    if chosen is not None and chosen not in table.columns:
        raise UsageError(f"there is no column {chosen!r}; the columns are {', '.join(table.columns)}")
    return chosen or next((name for name in ID_COLUMNS if name in table.columns), None)


def _repeated(table: Table, column: str | None, count: int) -> dict[int, str]:
    """What is wrong with rows whose id an earlier row has, by their number; 16 bytes a row are enough to find them."""
    if column is None:
        return {}
    hashes = array("Q", (_hash(value, index) for index, value in zip(range(count), table.values(column))))
    keys = np.frombuffer(hashes, np.uint64)
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    return dict(_repeats(table, column, order, same))


def _hash(value: Any, index: int) -> int:
    """64 bits of an id; rows without one differ from all others."""
    text = f"row {index}" if is_empty(value) else f"id {value}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _repeats(table: Table, column: str, order: Any, same: Any) -> Iterator[tuple[int, str]]:
    for place in same:
        earlier, later = int(order[place]), int(order[place + 1])
        value = table[later].get(column)
        yield later, f"its {column} {shown(value)} is that of row {earlier}, too"
