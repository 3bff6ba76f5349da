"""Crash-safe writing: atomic replacement of files and folders, append-only line logs, and locked output folders."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from vlmgym import __version__
from vlmgym.errors import UsageError, VlmgymError, describe_validation_error

ModelT = TypeVar("ModelT", bound=BaseModel)

LOCK = ".lock"
"""Name of the lock file in an output folder that is in use."""


class OutputError(VlmgymError):
    """A file cannot be written."""


SYNC_INTERVAL = 1.0
"""Minimum seconds between two syncs of a line log. A sync takes 2 ms or more, as long as some episodes."""


class LineLog:
    """Append-only text file. Lines survive the end of the process at once, and a power failure after a sync."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self._synced = -math.inf

    def __enter__(self) -> LineLog:
        with writing(self.path):
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._file: BinaryIO = os.fdopen(os.open(self.path, flags, 0o666), "ab+", buffering=0)
        return self

    def write(self, line: str) -> None:
        """Append a line, and sync the file to disk unless that was done less than `SYNC_INTERVAL` ago.

        Raises:
            OutputError: The line cannot be written, for instance because the disk is full; the file is unchanged.
        """
        with writing(self.path):
            length = os.fstat(self._file.fileno()).st_size
            open_line = length > 0 and os.pread(self._file.fileno(), 1, length - 1) not in b"\r\n"
            remaining = memoryview(("\n" * open_line + line + "\n").encode())
            try:
                while remaining:  # on a nearly full disk, the first write is partial and the next one fails
                    remaining = remaining[self._file.write(remaining) :]
                if time.monotonic() - self._synced >= SYNC_INTERVAL:
                    os.fsync(self._file.fileno())
                    self._synced = time.monotonic()
            except OSError:
                self._file.truncate(length)
                raise
        self.written += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file, writing(self.path):
            if kind is None:
                os.fsync(self._file.fileno())


def replace_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file atomically, replacing an existing one; `data` is given whole or in chunks."""
    part = temporary(path)
    with writing(path):
        file = part.open("xb")
        try:
            with file:
                file.writelines([data] if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file atomically, creating its parent folders."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)


@contextmanager
def output_folder(folder: Path, *names: str) -> Iterator[Path]:
    """Create an output folder, and lock it against other processes; a new folder that stays empty is removed.

    Args:
        folder: Folder that is missing, empty, or has one of `names`.
        names: Files that mark the folder as written by vlmgym.

    Raises:
        UsageError: The folder has other files.
        OutputError: Another process uses the folder, or it cannot be created.
    """
    folder = folder.absolute()
    check_output_folder(folder, *names)
    with writing(folder):
        new_folders = list(takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
        folder.mkdir(parents=True, exist_ok=True)
    lock = folder / LOCK
    with writing(folder):
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_owned = os.path.samestat(os.fstat(file), os.stat(lock))
        except (BlockingIOError, FileNotFoundError):
            is_owned = False
        if not is_owned:  # another process holds the lock, or has just removed it
            raise OutputError(f"another run is writing to {folder}: choose another --output-dir")
        try:
            yield folder
        finally:
            with writing(folder):
                lock.unlink(missing_ok=True)
            for path in new_folders:
                with suppress(OSError):  # it is not empty
                    path.rmdir()
    finally:
        os.close(file)


def check_output_folder(folder: Path, *names: str) -> None:
    """Raise `UsageError` unless a folder is missing, empty, or has one of the files `names`."""
    with writing(folder):
        try:
            others = {entry.name for entry in os.scandir(folder)} - {LOCK}
        except FileNotFoundError:
            return
        except NotADirectoryError:
            if folder.is_file():
                raise UsageError(f"{folder} is a file: choose a folder") from None
            raise
    if others and not others.intersection(names):
        examples = ", ".join(map(repr, sorted(others)[:3])) + (", ..." if len(others) > 3 else "")
        missing = f" but no {' or '.join(names)}" if names else ""
        raise UsageError(f"{folder} has files{missing} ({examples}): choose a new or empty folder")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which becomes `folder`, missing or empty so far, at the end of the block."""
    folder = folder.absolute()
    check_output_folder(folder)
    with _part(folder) as part:
        yield part
        with writing(folder):
            part.rename(folder)


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which replaces `folder` at the end of the block."""
    folder = folder.absolute()
    with _part(folder) as part:
        yield part
        with writing(folder):
            for file in part.rglob("*"):
                if file.is_file():
                    with file.open("rb") as stream:
                        os.fsync(stream.fileno())
            old_folder = temporary(folder)
            if folder.exists():
                folder.rename(old_folder)
            part.rename(folder)
            if old_folder.exists():
                shutil.rmtree(old_folder)


@contextmanager
def _part(folder: Path) -> Iterator[Path]:
    part = temporary(folder)
    with writing(folder):
        part.mkdir(parents=True)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


OWN = {
    ".html": re.compile(rb'<meta name="generator" content="vlmgym">'),
    ".json": re.compile(rb'\A\{\s*"vlmgym": '),
}
"""Patterns that mark files as written by vlmgym, by suffix; searched in the first `OWN_BYTES` bytes."""
OWN_BYTES = 2000


def check_own_file(path: Path) -> None:
    """Raise `UsageError` unless a file is missing or was written by vlmgym."""
    with writing(path):
        if not os.path.lexists(path):
            return
        is_ours, pattern = False, OWN.get(path.suffix.lower())
        if pattern is not None and path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                is_ours = pattern.search(file.read(OWN_BYTES)) is not None
    if not is_ours:
        raise UsageError(f"{path} exists and was not written by vlmgym: move it away, or choose another file")


def json_bytes(data: object) -> bytes:
    """Format a pydantic model or JSON-serialisable data as indented JSON."""
    text = (
        data.model_dump_json(indent=1)
        if isinstance(data, BaseModel)
        else json.dumps(data, indent=1, ensure_ascii=False)
    )
    return f"{text}\n".encode()


def read_model(path: Path, model: type[ModelT], missing: str) -> ModelT:
    """Read a JSON file as a pydantic model; raise `UsageError`, which says `missing` if the file cannot be opened."""
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{missing}: cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        raise UsageError(f"{path} cannot be read: {describe_validation_error(error)}") from None


def write_own_json(path: Path, numbers: Mapping[Any, Any]) -> None:
    """Write a JSON object, with vlmgym's version added, unless `check_own_file` rejects the path."""
    check_own_file(path)
    write_file(path, (json.dumps({"vlmgym": __version__, **numbers}, indent=1) + "\n").encode())


def free_path(path: Path) -> Path:
    """Return a path at which nothing exists, with a number added to the name if it is taken."""
    paths = (path if n == 1 else path.with_name(f"{path.name}-{n}") for n in count(1))
    return next(path for path in paths if not path.exists())


def temporary(path: Path) -> Path:
    """Return an unused temporary name in the same folder, with the same suffix."""
    return path.with_name(f".{path.stem}.{uuid4().hex[:12]}.part{path.suffix}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert OS errors to `OutputError` with the file name."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
