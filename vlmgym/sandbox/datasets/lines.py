"""Where the lines of a large text file begin, found without reading it into memory."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import StateError, UsageError

CHUNK = 1 << 24
"""Bytes looked at in one go."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Lines:
    """The lines of an UTF-8 file by number; empty ones are left out. Threads and forked processes may share it."""

    def __init__(self, path: Path, quotes: bool = False) -> None:
        """Find the lines.

        Args:
            path: The file.
            quotes: Whether a line break between double quotes belongs to the line, as in CSV.

        Raises:
            UsageError: The file cannot be read, or a quote is never closed.
        """
        try:
            self._file = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)
            self._path, self._version = path, version_of(os.fstat(self._file))
            self._starts = _starts(path, quotes)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None

    def __len__(self) -> int:
        return self._starts.size - 1

    def __getitem__(self, index: int) -> bytes:
        """A line without its line break.

        Raises:
            StateError: The file was written to since its lines were found.
        """
        if version_of(os.fstat(self._file)) != self._version:
            raise StateError(f"{self._path} has changed since it was opened")
        start, end = int(self._starts[index]), int(self._starts[index + 1])
        return os.pread(self._file, end - start, start).rstrip(b"\r\n")


def version_of(facts: os.stat_result) -> tuple[int, int, int]:
    """What differs if a file is another or was written to: its inode, its size, and when it was written."""
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _starts(path: Path, quotes: bool) -> NDArray[np.int64]:
    """Byte offsets where lines begin, and at the end the size of the file."""
    breaks, done, marks_before = [], 0, 0
    with path.open("rb") as file:
        first = len(BYTE_ORDER_MARK) if file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
        file.seek(0)
        while chunk := file.read(CHUNK):
            data = np.frombuffer(chunk, np.uint8)
            found = np.flatnonzero(data == ord("\n"))
            if quotes:
                marks = np.flatnonzero(data == ord('"'))
                # A line break after an odd number of quotes is inside them; a quote is written in them as two.
                found = found[(np.searchsorted(marks, found) + marks_before) % 2 == 0]
                marks_before += marks.size
            breaks.append(found + (done + 1))
            done += data.size
    if marks_before % 2:
        raise UsageError(f"{path} has an odd number of double quotes: one is never closed, or not written as two")
    starts = np.concatenate([[first], *breaks])
    if starts[-1] < done:
        starts = np.append(starts, done)
    return starts[np.append(~_empty(path, starts), True)] if starts.size > 1 else starts


def _empty(path: Path, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the lines hold nothing but their line break."""
    lengths = np.diff(starts)
    empty = lengths == 1
    pairs = np.flatnonzero(lengths == 2)
    data = np.memmap(path, np.uint8, "r")
    empty[pairs] = data[starts[pairs]] == ord("\r")
    if lengths[-1] <= 2 and data[-1] != ord("\n"):
        empty[-1] = False  # one or two characters at the end of the file, without a line break
    return np.asarray(empty)
