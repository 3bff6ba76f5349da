"""OpenStreetView-5M (osv5m/osv5m on the Hub): folders in the published layout, and their resumable download."""

from __future__ import annotations

import csv
import os
import re
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from vlmgym.errors import InfrastructureError, UsageError, importing, one_line, short_repr, truncate
from vlmgym.sandbox.data.rows import BadRow, DataRow, text_of
from vlmgym.sandbox.data.tables import HUB_ID, Table, open_table

OSV5M = "osv5m/osv5m"


def open_osv5m(data: str, split: str | None) -> Table:
    """Open a table; if it is an OpenStreetView-5M table in a local folder, add the paths of its images.

    The images are `images/SPLIT/NN/ID.jpg`, where SPLIT is the name of the table's file without its extension.
    """
    match = HUB_ID.fullmatch(data)
    if match is not None and match["repo"] == OSV5M and not Path(data).expanduser().exists():
        raise UsageError(f"{data} is hundreds of GB of zip files; `vlmgym data fetch osv5m` downloads part of it")
    table = open_table(data, split)
    folder, columns = table.folder, set(table.columns)
    if folder is None or not table.stem or not columns >= {"id", "latitude", "longitude"} or "image" in columns:
        return table
    images = folder / "images" / table.stem
    if not images.is_dir():
        return table
    shards = sorted(path for path in images.iterdir() if path.is_dir())
    return table.with_columns(("image",), lambda row: _image_path(row, folder, images, shards))


def _image_path(row: DataRow, folder: Path, images: Path, shards: list[Path]) -> dict[str, str]:
    """Find a row's image in the numbered folders; return its path relative to `folder` as the column `image`.

    If there is no such image, the path points to a missing file.
    """
    name = text_of(row, "id")
    if not name.isalnum():
        raise BadRow(f"id must be alphanumeric, got {short_repr(name)}")
    path = next((shard / f"{name}.jpg" for shard in shards if (shard / f"{name}.jpg").is_file()), None)
    return {"image": str((path or images / f"{name}.jpg").relative_to(folder))}


# Download -------------------------------------------------------------------------------------------------------------

SPLITS = ("test", "train")
IMAGES = "images"
KEPT = ("id", "latitude", "longitude", "country", "region", "city")
MAX_BYTES = 1 << 36
"""Maximum total size in bytes of the 50,000 images in an archive."""


def fetch_osv5m(out: Path, split: str, shards: int | None) -> Path:
    """Download a split, or its first `shards` shards, and write a table of the rows whose images are present.

    Each shard is downloaded, extracted and removed before the next one; complete shards are skipped.

    `out` receives the images in `images/SPLIT/NN/`, `SPLIT.csv` as on the Hub, and the returned `osv5m-SPLIT.csv`, a
    table of all images that are present, including earlier downloads.

    Raises:
        UsageError: There is no such split, or an archive is rejected.
        InfrastructureError: The Hub does not respond, or the disk is full.
    """
    if split not in SPLITS:
        raise UsageError(f"OSV-5M has the splits {' and '.join(SPLITS)}, got {split!r}")
    with importing("downloading OSV-5M", "data"):
        import huggingface_hub as hub
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of its HTTP client
    images = out / IMAGES / split
    try:
        images.mkdir(parents=True, exist_ok=True)
        print(f"listing {OSV5M}")
        is_shard = re.compile(rf"{IMAGES}/{split}/[0-9]+\.zip").fullmatch
        names = sorted(filter(is_shard, hub.HfApi().list_repo_files(OSV5M, repo_type="dataset")))
        if not names:
            raise UsageError(f"{OSV5M} has no shards of the split {split}")
        chosen = names if shards is None else names[:shards]
        table = Path(hub.hf_hub_download(OSV5M, f"{split}.csv", repo_type="dataset", local_dir=out))
        for number, name in enumerate(chosen, 1):
            shard = images / Path(name).stem
            if shard.is_dir():
                print(f"shard {number} of {len(chosen)} is complete")
                continue
            print(f"shard {number} of {len(chosen)}: downloading {name}")
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
    """Extract the images of an untrusted zip file into a new folder, without the archive's folder structure."""
    try:
        with zipfile.ZipFile(archive) as opened:
            images = [member for member in opened.infolist() if member.filename.lower().endswith(".jpg")]
            if (total := sum(member.file_size for member in images)) > MAX_BYTES:
                raise UsageError(f"{archive} is rejected: its images total {total} bytes, more than {MAX_BYTES}")
            folder.mkdir(parents=True)
            for member in images:
                path = folder / PurePosixPath(member.filename).name
                with opened.open(member) as source, path.open("xb") as target:
                    shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, zlib.error, EOFError, FileExistsError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{archive} is not a valid zip file ({error}): delete it and download it again") from None


def _write_table(table: Path, images: Path, out: Path) -> Path:
    """Write the rows whose images are present, with an added column `image`; return the path of the new table.

    Tables are read into memory, so it has only the columns that geospot reads.
    """
    shards = sorted(path for path in images.iterdir() if path.name.isdecimal())
    paths = {name: shard / name for shard in shards for name in os.listdir(shard)}
    written = out / f"osv5m-{table.name}"
    unfinished = written.with_suffix(".unfinished")
    copied = rows = 0
    with (
        table.open(encoding="utf-8-sig", newline="") as source,
        unfinished.open("w", encoding="utf-8", newline="") as target,
    ):
        reader = csv.DictReader(source)
        columns = [column for column in reader.fieldnames or () if column in KEPT]
        writer = csv.DictWriter(target, [*columns, "image"], extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in reader:
            rows += 1
            if (path := paths.get(f"{row['id']}.jpg")) is not None:
                writer.writerow({**row, "image": path.relative_to(out)})
                copied += 1
    os.replace(unfinished, written)
    print(f"{copied} of {rows} rows have an image; {len(paths)} images are present")
    return written
