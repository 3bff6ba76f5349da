"""Where the lines of a large text file begin, found without reading it into memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 24
"""Bytes looked at in one go."""


def line_starts(path: Path, quotes: bool = False) -> NDArray[np.int64]:
    """Byte offsets where lines begin, and at the end the size of the file; lines of nothing but blanks are left out.

    Args:
        path: An UTF-8 file.
        quotes: Whether a line break between double quotes belongs to the line, as in CSV.

    Raises:
        OSError: The file cannot be read.
    """
    breaks = [np.zeros(1, np.int64)]
    done, open_quotes = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            data = np.frombuffer(chunk, np.uint8)
            found = np.flatnonzero(data == ord("\n"))
            if quotes:
                marks = np.flatnonzero(data == ord('"'))
                # A line break after an odd number of quotes is inside them; a doubled quote counts as two.
                found = found[(np.searchsorted(marks, found) + open_quotes) % 2 == 0]
                open_quotes += marks.size
            breaks.append(found + (done + 1))
            done += data.size
    starts = np.concatenate(breaks)
    return starts if starts[-1] == done else np.append(starts, done)
