"""A folder of files that is there whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.evaluation.files import writing
from vlmgym.evaluation.run_folder import RunFolder


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Where to write the files of a new folder, which gets its name when all of them are there.

    Args:
        folder: The name; nothing is there yet.

    Raises:
        UsageError: Something is there.
        OutputError: It cannot be written, or another process is writing it.
    """
    folder = folder.absolute()
    with writing(folder):
        taken = folder.exists() or folder.is_symlink()
    if taken:
        raise UsageError(f"{folder} is there already: choose another --out")
    part = folder.with_name(f".{folder.name}.part")
    with RunFolder(folder).reserved():
        with writing(folder):
            shutil.rmtree(part, ignore_errors=True)  # what a process that was killed has left
            part.mkdir(parents=True)
        try:
            yield part
            with writing(folder):
                part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
