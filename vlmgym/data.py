"""The command `vlmgym data`: check the rows of a data set, or download a large one."""

from __future__ import annotations

from array import array
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
from vlmgym.sandbox.datasets.rows import BadRow, is_empty
from vlmgym.sandbox.datasets.source import Source, repeated_id
from vlmgym.sandbox.task import Task


@dataclass(frozen=True, kw_only=True)
class DataCheckConfig(GameOptions):
    """Check data as a task reads them: decode every image and report each bad row or repeated id."""

    game: tyro.conf.Positional[str]
    """Id or name of the task. Choose the data with --set data=..."""
    rows: int | None = None
    """Number of rows to check, from the first. Default: all."""


@dataclass(frozen=True, kw_only=True)
class DataFetchConfig:
    """Download a data set that is too large for `data=`. Complete parts are not downloaded again."""

    dataset: tyro.conf.Positional[Literal["osv5m"]]
    """osv5m: OpenStreetView-5M, 5 million street views with coordinates (osv5m/osv5m on the Hub)."""
    out: Path
    """Destination folder."""
    split: Literal["test", "train"] = "test"
    """test has 210,122 images in 5 shards, train 4.9 million in 98."""
    shards: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of shards, of about 50,000 images each. Default: all."""


def check_data(config: DataCheckConfig) -> None:
    """Print every bad row and a summary; exit with 1 if a row is bad.

    Raises:
        UsageError: The task does not exist, or its data cannot be opened.
    """
    game = config.make_game(config.game)
    if not isinstance(game, Task):
        raise UsageError(f"{game.name} does not take data")
    if config.rows is not None and config.rows < 1:
        raise UsageError(f"rows must be at least 1, got {config.rows}")
    source = game.source
    count = len(source) if config.rows is None else min(config.rows, len(source))
    repeated = {} if source.id_column is None or source.compares_ids else _repeated(source, count)
    bad = 0
    for index in track(range(count), "rows", console=Console(stderr=True), transient=True):
        try:
            if index in repeated:
                raise BadRow(repeated[index])
            game.read_row(index)
        except BadRow as error:
            bad += 1
            print(f"row {index}: {error}")
    print(f"{count} of {len(source)} rows checked: {count - bad} good, {bad} bad")
    if bad:
        raise SystemExit(1)


def fetch_data(config: DataFetchConfig) -> None:
    """Download a data set and print a command that uses it.

    Raises:
        UsageError: The number of shards is invalid, or an archive is refused.
        InfrastructureError: The Hub does not respond.
    """
    if config.shards is not None and config.shards < 1:
        raise UsageError(f"shards must be at least 1, got {config.shards}")
    table = fetch_osv5m(config.out, config.split, config.shards)
    print(f"Use it with: vlmgym eval geospot --set data={table}")


def _repeated(source: Source, count: int) -> dict[int, str]:
    """Find rows that repeat an earlier id, with the reason; takes 16 bytes per row."""
    hashes = array("Q", (_hash(value, index) for index, value in zip(range(count), source.ids())))
    keys = np.frombuffer(hashes, np.uint64)
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    earlier = dict(zip(order[same + 1].tolist(), order[same].tolist()))
    ids = ((index, value) for index, value in zip(range(count), source.ids()) if index in earlier)
    return {index: repeated_id(value, earlier[index]) for index, value in ids} if earlier else {}


def _hash(value: Any, index: int) -> int:
    """Hash an id to 64 bits; rows without an id get distinct hashes."""
    text = f"row {index}" if is_empty(value) else f"id {value}"
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
