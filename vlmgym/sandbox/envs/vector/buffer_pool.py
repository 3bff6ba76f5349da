"""Copy large arrays into reused memory, because page faults of a new array cost many times more than copying."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

SPARES = 3
"""Maximum number of arrays whose memory is kept for reuse."""


class BufferPool:
    """Copies arrays into the memory of earlier copies that are no longer referenced.

    A copy is never overwritten while it is referenced, even if only by a view or by another library. Callers get views,
    so that they cannot change the flags or type of the underlying array.
    """

    def __init__(self) -> None:
        self._spares: list[NDArray[np.uint8]] = []

    def copy(self, source: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return an independent copy."""
        for i in range(len(self._spares)):
            if self._spares[i].shape == source.shape and _references(self._spares, i) == _UNUSED:
                np.copyto(self._spares[i], source)
                return self._spares[i][...]
        self._spares = [*self._spares[1 - SPARES :], source.copy()]
        return self._spares[-1][...]


def _references(arrays: list[NDArray[np.uint8]], i: int) -> int:
    return sys.getrefcount(arrays[i])


_UNUSED = _references([np.empty(0, np.uint8)], 0)
"""Reference count of an array that is referenced only by the list."""
