"""Unzipping pictures of others: nothing outside the folder, nothing but pictures, and no more than fits."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.images import LARGEST_FILE

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
LARGEST_ARCHIVE = 1 << 36
"""Bytes of all pictures of an archive; a shard of OSV-5M has 50,000 of them."""
LARGEST_RATIO = 100
"""How many times larger than its compressed form a picture may be; JPEG hardly shrinks."""
_BLOCK = 1 << 20


def unzip_pictures(archive: Path, folder: Path) -> int:
    """Unzip the pictures of an archive into one folder, without the folders they are in there.

    The whole archive is refused, and the folder not made, if a name leads out of the folder, is there twice, or
    belongs to a link, or if sizes are those of a bomb; `zipfile` reads no more of a file than its stated size.

    Args:
        archive: A zip file.
        folder: Made here; must not be there yet.

    Returns:
        How many pictures there were.

    Raises:
        UsageError: The archive is refused or damaged; what was written is removed.
        OSError: The disk is full.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _checked(opened)
            folder.mkdir(parents=True)
            try:
                for name, member in members.items():
                    with opened.open(member) as source, (folder / name).open("xb") as to:
                        shutil.copyfileobj(source, to)
            except BaseException:
                shutil.rmtree(folder)
                raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{archive} is damaged or no zip file ({error}): delete it and fetch it again") from None
    except _Refused as error:
        raise UsageError(f"{archive} is refused: {error}") from None
    return len(members)


class _Refused(Exception):
    """Why an archive is not unzipped."""


def _checked(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The pictures of an archive by their names without folders."""
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in member.filename:
            raise _Refused(f"{member.filename!r} leads out of the folder")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise _Refused(f"{member.filename!r} is a link")
        if member.is_dir() or path.suffix.lower() not in SUFFIXES:
            continue
        if path.name in members:
            raise _Refused(f"it holds two pictures {path.name!r}")
        if member.file_size > LARGEST_FILE or member.file_size > LARGEST_RATIO * max(member.compress_size, _BLOCK):
            raise _Refused(f"{member.filename!r} has {member.file_size} bytes from {member.compress_size}")
        total += member.file_size
        members[path.name] = member
    if total > LARGEST_ARCHIVE:
        raise _Refused(f"its pictures have {total} bytes together, more than {LARGEST_ARCHIVE}")
    return members
