"""Extracting images from untrusted zip files: nothing outside the folder, only images, and limited sizes."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets.images import MAX_FILE_BYTES

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
MAX_TOTAL_BYTES = 1 << 36
"""Bytes of all images in an archive; a shard of OpenStreetView-5M has 50,000 images."""
MAX_RATIO = 100
"""Compression ratio of an image; JPEG hardly compresses."""
_BLOCK = 1 << 20


def unzip_images(archive: Path, folder: Path) -> int:
    """Extract the images of a zip file into one new folder, without their folders in the archive.

    The whole archive is refused if a name leads outside the folder, repeats or belongs to a link, or if a size
    suggests a zip bomb. `zipfile` reads no more of a file than its stated size.

    Returns:
        The number of images.

    Raises:
        UsageError: The archive is refused or damaged. Extracted files are removed.
        OSError: The disk is full.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _check(opened)
            folder.mkdir(parents=True)
            try:
                for name, member in members.items():
                    with opened.open(member) as source, (folder / name).open("xb") as target:
                        shutil.copyfileobj(source, target)
            except BaseException:
                shutil.rmtree(folder)
                raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise UsageError(f"{archive} is not a valid zip file ({error}): delete it and download it again") from None
    return len(members)


def _check(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the images of an archive by file name."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in member.filename:
            raise _refused(archive, f"{member.filename!r} leads outside the folder")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise _refused(archive, f"{member.filename!r} is a link")
        if member.is_dir() or path.suffix.lower() not in SUFFIXES:
            continue
        if path.name in members:
            raise _refused(archive, f"it contains two images named {path.name!r}")
        if member.file_size > MAX_FILE_BYTES or member.file_size > MAX_RATIO * max(member.compress_size, _BLOCK):
            raise _refused(archive, f"{member.filename!r} has {member.file_size} bytes from {member.compress_size}")
        members[path.name] = member
    if (total := sum(member.file_size for member in members.values())) > MAX_TOTAL_BYTES:
        raise _refused(archive, f"its images have {total} bytes in total, more than {MAX_TOTAL_BYTES}")
    return members


def _refused(archive: zipfile.ZipFile, reason: str) -> UsageError:
    return UsageError(f"{archive.filename} is refused: {reason}")
