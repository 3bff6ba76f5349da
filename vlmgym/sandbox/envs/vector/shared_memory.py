"""Memory that processes share and that nothing is left of when they are gone, killed or not.

It has no name in any file system, so it cannot leak, and it is not bound by the size of /dev/shm (64 MB in a
container by default). A process that is spawned gets it through its arguments.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class PrivateArray:
    """Zeros of a shape and type, of this process alone."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        """Reserve the memory; the system provides a page of it when it is first touched.

        Args:
            shape: Shape of the array.
            dtype: Type of its elements, also a structured one.

        Raises:
            MemoryError: There is not enough.
        """
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._buffer = self._reserve(max(1, self.nbytes))

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def array(self) -> NDArray[Any]:
        """A view; the memory lasts as long as any view of it in any process."""
        return np.frombuffer(self._buffer, self.dtype, self.nbytes // self.dtype.itemsize).reshape(self.shape)

    def _reserve(self, size: int) -> Any:
        return np.zeros(size, np.uint8)

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process gets is memory of its own, zeros again."""
        return type(self), (self.shape, self.dtype)


class SharedArray(PrivateArray):
    """The same memory in every process that the object is handed to at its start.

    First touches through the array cost about ten times what they do in memory of one process (1 ms for a frame of
    640 x 640), because the system provides, and clears, every page by itself; `write_first` takes two thirds of that.
    """

    def write_first(self, index: int, value: NDArray[Any]) -> None:
        """Set what is at an index of the first axis through the file, for the first time.

        Pages then need not be cleared, and are mapped several at a time.

        Args:
            index: The index.
            value: Contiguous, of the shape and type of an element.
        """
        os.pwrite(self._file, value.data, index * value.nbytes)
        self.array()[index].view(np.uint8).reshape(-1)[:: mmap.PAGESIZE].max()

    def _reserve(self, size: int) -> Any:
        self._file = _anonymous_file(size)
        return mmap.mmap(self._file, size)

    def __reduce__(self) -> tuple[Any, ...]:
        """Works only as an argument of a process that is being spawned."""
        return _attach, (self.shape, self.dtype, reduction.DupFd(self._file))

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)


def _attach(shape: tuple[int, ...], dtype: np.dtype[Any], file: Any) -> SharedArray:
    shared = SharedArray.__new__(SharedArray)
    shared.shape, shared.dtype = shape, dtype
    shared._file = file.detach()
    shared._buffer = mmap.mmap(shared._file, max(1, shared.nbytes))
    return shared


def _anonymous_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("vlmgym")
    else:
        with tempfile.TemporaryFile() as named:
            file = os.dup(named.fileno())
    os.ftruncate(file, size)
    return file
