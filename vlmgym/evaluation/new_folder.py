"""A folder of files that is there whole or not at all."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.records.files import writing
from vlmgym.records.output_folder import OutputFolder, mode_of


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which gets its name when everything is there.

    Args:
        folder: The name; nothing is there yet, or an empty folder.

    Raises:
        UsageError: Something is there.
        OutputError: It cannot be written, or another process is writing it.
    """
    folder = folder.absolute()
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        mode = mode_of(folder)
        taken = mode and not (stat.S_ISDIR(mode) and not any(folder.iterdir()))
    if taken:
        raise UsageError(f"{folder} is there already: choose another --output-dir")
    place = folder.with_name(f".{folder.name}.part")
    part = OutputFolder(place)
    try:
        with part.reserved():
            part.take_whole()  # also what a process that was killed has left
            try:
                yield place
                with writing(folder):
                    place.rename(folder)
            except BaseException:
                part.take_whole()
                part.remove(place)
                raise
            OutputFolder(folder).release_whole()
    finally:
        with suppress(OSError):
            place.rmdir()
