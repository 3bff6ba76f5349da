"""Downloading OpenStreetView-5M from the hub, shard by shard; a download that was broken off goes on where it was."""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vlmgym.errors import InfrastructureError, UsageError
from vlmgym.sandbox.datasets.extra import download_failures, library, one_line
from vlmgym.sandbox.datasets.osv5m import PICTURES, REPO
from vlmgym.sandbox.datasets.unzip import unzip_pictures

SPLITS = ("test", "train")


def fetch_osv5m(out: Path, split: str, shards: int | None, say: Callable[[str], None] = print) -> Path:
    """Download a split, or the first shards of it, and write the table of the rows whose pictures are there.

    A shard is downloaded, unzipped and removed before the next one; what is complete is not downloaded again.

    Args:
        out: The folder: `images/SPLIT/NN/` for the pictures, `SPLIT.csv` as on the hub, `osv5m-SPLIT.csv` for the rows.
        split: `test` (5 shards) or `train` (98).
        shards: How many; None: all.
        say: Told what is at work, one line each.

    Returns:
        The table, to be given as `data=`. It names all pictures that are there, also those of earlier calls.

    Raises:
        UsageError: There is no such split, or an archive is not what it should be.
        InfrastructureError: The hub does not answer, or the disk is full.
    """
    if split not in SPLITS:
        raise UsageError(f"OSV-5M has the splits {' and '.join(SPLITS)}, not {split!r}")
    hub = library("huggingface_hub", "downloading OSV-5M")
    pictures = out / PICTURES / split
    try:
        pictures.mkdir(parents=True, exist_ok=True)
        say(f"listing {REPO}")
        names = sorted(filter(_shard_of(split).fullmatch, hub.HfApi().list_repo_files(REPO, repo_type="dataset")))
        if not names:
            raise UsageError(f"{REPO} has no shard of {split}")
        chosen = names if shards is None else names[:shards]
        table = Path(hub.hf_hub_download(REPO, f"{split}.csv", repo_type="dataset", local_dir=out))
        for number, name in enumerate(chosen, 1):
            shard = pictures / Path(name).stem
            if shard.is_dir():
                say(f"shard {number} of {len(chosen)} is there")
                continue
            say(f"shard {number} of {len(chosen)}: downloading {name}")
            archive = Path(hub.hf_hub_download(REPO, name, repo_type="dataset", local_dir=out))
            unfinished = pictures / f".{shard.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unzip_pictures(archive, unfinished)
            os.replace(unfinished, shard)
            archive.unlink()
        return _write_rows(table, pictures, out, say)
    except download_failures() as error:
        raise InfrastructureError(f"downloading OSV-5M failed: {one_line(error)}; run it again to go on") from None


def _shard_of(split: str) -> re.Pattern[str]:
    return re.compile(rf"{PICTURES}/{split}/[0-9]+\.zip")


def _write_rows(table: Path, pictures: Path, out: Path, say: Callable[[str], None]) -> Path:
    """Write the rows of the split's table whose pictures are there, with the path of the picture as column `image`."""
    shards = sorted(entry for entry in pictures.iterdir() if entry.name.isdecimal())
    found = [np.array(sorted(_ids(shard)), np.int64) for shard in shards]
    ids = np.concatenate(found)
    where = np.repeat(np.arange(len(shards)), [part.size for part in found])
    order = np.argsort(ids, kind="stable")
    ids, where = ids[order], where[order]
    written = out / f"osv5m-{table.name}"
    unfinished = written.with_suffix(".unfinished")
    kept = rows = 0
    with (
        table.open(encoding="utf-8-sig", newline="") as source,
        unfinished.open("w", encoding="utf-8", newline="") as to,
    ):
        reader = csv.reader(source)
        writer = csv.writer(to, lineterminator="\n")
        columns = next(reader)
        place = columns.index("id")
        writer.writerow([*columns, "image"])
        for row in reader:
            rows += 1
            name = row[place] if len(row) > place else ""
            number = int(name) if name.isdecimal() and len(name) < 19 else -1
            at = int(np.searchsorted(ids, number))
            if at < ids.size and ids[at] == number:
                shard = shards[where[at]]
                writer.writerow([*row, f"{(shard / name).relative_to(out)}.jpg"])
                kept += 1
    os.replace(unfinished, written)
    say(f"{kept} of {rows} rows have their picture, and {ids.size} pictures are there")
    return written


def _ids(shard: Path) -> list[int]:
    names = (entry.name.removesuffix(".jpg") for entry in os.scandir(shard) if entry.name.endswith(".jpg"))
    return [int(name) for name in names if name.isdecimal() and len(name) < 19]
