"""Copies of large arrays without fresh memory: providing pages for a new array costs many times what copying does."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray


class BufferPool:
    """Copies arrays of one shape into memory of earlier copies that nobody refers to any more.

    A copy that is still in use, also by a view or through another library, is never written again. What is handed out
    is a view, so that nobody can change the flags or the type of the memory behind it.
    """

    def __init__(self, spares: int = 3) -> None:
        """Keep at most so many former copies at hand."""
        self._spares: list[NDArray[np.uint8]] = []
        self._most = spares

    def copy(self, source: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """An independent copy."""
        for i in range(len(self._spares)):
            if self._spares[i].shape == source.shape and _references(self._spares, i) == _UNUSED:
                np.copyto(self._spares[i], source)
                return self._spares[i][...]
        self._spares = [*self._spares[1 - self._most :], source.copy()]
        return self._spares[-1][...]


def _references(arrays: list[NDArray[np.uint8]], i: int) -> int:
    return sys.getrefcount(arrays[i])


_UNUSED = _references([np.empty(0, np.uint8)], 0)
"""How many references an array in a list has that nobody else refers to."""
