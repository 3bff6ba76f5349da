"""`vlmgym data`: check the data of a task for bad rows, or download a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import track

from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.runs.files import output_folder
from vlmgym.sandbox.core.data_task import DataTask
from vlmgym.sandbox.data.rows import BadRow
from vlmgym.sandbox.games.geospot.osv5m import fetch_osv5m
from vlmgym.sandbox.options import GameOptions


@dataclass(frozen=True, kw_only=True)
class DataCheckConfig(GameOptions):
    """Check data the way a task reads it: report each bad row."""

    game: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """Id or name of the task. Choose the data with --config data=..."""
    rows: int | None = None
    """Number of rows to check, starting with the first. None means all."""

    def __post_init__(self) -> None:
        check_int("rows", self.rows, 1, optional=True)


@dataclass(frozen=True, kw_only=True)
class DataFetchConfig:
    """Download a dataset that is too large to open from the Hub, for use with `data=`; complete shards are kept."""

    dataset: tyro.conf.Positional[Literal["osv5m"]]
    """osv5m: OpenStreetView-5M, 5 million street views with coordinates (osv5m/osv5m on the Hub)."""
    output_dir: Path
    """Destination folder."""
    split: Literal["test", "train"] = "test"
    """Split to download: test (210,122 images in 5 shards) or train (4.9 million images in 98 shards)."""
    shards: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Number of shards, of about 50,000 images each. None means all."""

    def __post_init__(self) -> None:
        check_int("shards", self.shards, 1, optional=True)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Options of `vlmgym data`."""

    config: Annotated[
        Annotated[DataCheckConfig, tyro.conf.subcommand("check")]
        | Annotated[DataFetchConfig, tyro.conf.subcommand("fetch")],
        tyro.conf.arg(name=""),
    ]


def data(chosen: DataConfig) -> None:
    """Run the chosen subcommand."""
    if isinstance(chosen.config, DataCheckConfig):
        check_data(chosen.config)
    else:
        fetch_data(chosen.config)


def check_data(config: DataCheckConfig) -> None:
    """Print every bad row and a summary; exit with code 1 if any row is bad."""
    game = config.make_game(config.game)
    if not isinstance(game, DataTask):
        raise UsageError(f"{game.name} does not take data")
    source = game.source
    count = len(source) if config.rows is None else min(config.rows, len(source))
    bad, seen = 0, dict[str, int]()
    for index in track(range(count), "rows", console=Console(stderr=True), transient=True):
        try:
            game.read_row(index)
            label = source.read_id(index)
            if label is not None and (earlier := seen.setdefault(label, index)) != index:
                raise BadRow(f"its id {label!r} is also the id of row {earlier}")
        except BadRow as error:
            bad += 1
            print(f"row {index}: {error}")
    print(f"{count} of {len(source)} rows checked: {count - bad} good, {bad} bad")
    if bad:
        raise SystemExit(1)


def fetch_data(config: DataFetchConfig) -> None:
    """Download a dataset and print a command that uses it."""
    with output_folder(config.output_dir, "test.csv", "train.csv", ".cache"):
        table = fetch_osv5m(config.output_dir, config.split, config.shards)
    print(f"Use it with: vlmgym eval geospot --config data={table}")
