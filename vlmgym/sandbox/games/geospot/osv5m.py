"""OpenStreetView-5M (osv5m/osv5m on the Hub): resumable download of a part."""

from __future__ import annotations

import csv
import os
import re
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from vlmgym.errors import InfrastructureError, UsageError, importing, one_line, truncate

OSV5M = "osv5m/osv5m"
KEPT = ("id", "latitude", "longitude", "country", "region", "city")
MAX_BYTES = 1 << 36
"""Maximum total size in bytes of the 50,000 images in an archive."""


def fetch_osv5m(out: Path, split: str, shards: int | None) -> Path:
    """Download a split, or its first `shards` shards, and write a table of the rows whose images are present.

    Each shard is downloaded, extracted and removed before the next one; complete shards are skipped.

    `out` receives the images in `images/SPLIT/NN/`, `SPLIT.csv` as on the Hub, and the returned `osv5m-SPLIT.csv`, a
    table of all images that are present, including earlier downloads.

    Raises:
        UsageError: An archive is rejected.
        InfrastructureError: The Hub does not respond, or the disk is full.
    """
    with importing("downloading OSV-5M", "data"):
        import huggingface_hub as hub
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of its HTTP client
    images, is_shard = out / "images" / split, re.compile(rf"images/{split}/[0-9]+\.zip").fullmatch
    try:
        names = sorted(filter(is_shard, hub.HfApi().list_repo_files(OSV5M, repo_type="dataset")))[:shards]
        table = Path(hub.hf_hub_download(OSV5M, f"{split}.csv", repo_type="dataset", local_dir=out))
        for number, name in enumerate(names, 1):
            print(f"shard {number} of {len(names)}: {name}")
            shard = images / Path(name).stem
            if shard.is_dir():
                continue
            archive = Path(hub.hf_hub_download(OSV5M, name, repo_type="dataset", local_dir=out))
            unfinished = images / f".{shard.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unzip_images(archive, unfinished)
            os.replace(unfinished, shard)
            archive.unlink()
        return _write_table(table, images, out)
    except (OSError, HTTPError) as error:
        why = truncate(one_line(str(error)), 200) or type(error).__name__
        raise InfrastructureError(f"downloading OSV-5M failed: {why}; run it again to continue") from None


def unzip_images(archive: Path, folder: Path) -> None:
    """Extract the images of an untrusted zip file into a folder, without the archive's folder structure."""
    try:
        with zipfile.ZipFile(archive) as opened:
            images = [member for member in opened.infolist() if member.filename.lower().endswith(".jpg")]
            if (total := sum(member.file_size for member in images)) > MAX_BYTES:
                raise UsageError(f"{archive} is rejected: its images total {total} bytes, more than {MAX_BYTES}")
            for member in images:
                member.filename = PurePosixPath(member.filename).name
                opened.extract(member, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{archive} is not a valid zip file ({error}): delete it and download it again") from None


def _write_table(table: Path, images: Path, out: Path) -> Path:
    """Write the rows whose images are present, with an added column `image`; return the path of the new table.

    Tables are read into memory, so it has only the columns that geospot reads.
    """
    paths = {path.name: path.relative_to(out) for path in images.glob("[0-9]*/*")}
    written = out / f"osv5m-{table.name}"
    with (
        table.open(encoding="utf-8-sig", newline="") as source,
        written.open("w", encoding="utf-8", newline="") as target,
    ):
        reader = csv.DictReader(source)
        columns = [column for column in reader.fieldnames or () if column in KEPT]
        writer = csv.DictWriter(target, [*columns, "image"], extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in reader:
            if (path := paths.get(f"{row['id']}.jpg")) is not None:
                writer.writerow({**row, "image": path})
    print(f"{len(paths)} images are present")
    return written
