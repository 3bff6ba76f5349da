"""Writing that survives a crash: replace a file as a whole, append a line at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from vlmgym.errors import VlmgymError


class OutputError(VlmgymError):
    """A file cannot be written."""


class LineLog:
    """Lines of text, each on the disk before the next begins; lines that are there already stay."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0

    def __enter__(self) -> LineLog:
        with writing(self.path):
            self._file: BinaryIO = self.path.open("ab+", buffering=0)
        return self

    def write(self, line: str) -> None:
        """Append a line, in one piece.

        Raises:
            OutputError: The disk is full, or the like; the file ends with the lines before.
        """
        with writing(self.path):
            length = os.fstat(self._file.fileno()).st_size
            open_line = length > 0 and os.pread(self._file.fileno(), 1, length - 1) not in b"\r\n"
            left = memoryview(("\n" * open_line + line + "\n").encode())
            try:
                while left:  # a disk that is nearly full takes a part, and says why with the next
                    left = left[self._file.write(left) :]
                os.fsync(self._file.fileno())
            except OSError:
                self._file.truncate(length)
                raise
        self.written += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def replace_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file so that its name always stands for a whole one.

    Args:
        path: The file.
        data: What it holds, whole or in pieces.

    Raises:
        OutputError: It cannot be written.
    """
    part = path.with_name(path.name + ".part")
    with writing(path):
        file = part.open("wb")
        try:
            with file:
                file.writelines([data] if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's errors into one sentence that names the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
