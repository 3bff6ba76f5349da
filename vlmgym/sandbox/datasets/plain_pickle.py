"""Pickles of others, read without running anything of theirs: plain containers, texts, numbers and arrays of bytes."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import VlmgymError

_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    MemoryError,
)
"""What `pickle` raises for files that are cut off or made up."""


class NotPlain(VlmgymError):
    """A pickle that is damaged, or holds something else; the message says what."""


class PlainArray:
    """What an array of uint8 becomes: it stands for NumPy's own function, which is not trusted with made-up states."""

    values: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def __init__(self, *_: object) -> None:
        """Take the arguments of `numpy.core.multiarray._reconstruct`, which say nothing of the content."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, content = state
        if not (isinstance(kind, _Uint8) and isinstance(content, bytes) and isinstance(shape, tuple)):
            raise ValueError("an array is not one of uint8")
        self.values = np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")


class _Uint8:
    """What `numpy.dtype` becomes, which may be uint8 only."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise ValueError(f"an array of {code!r} is not one of uint8")

    def __setstate__(self, state: object) -> None:
        """Nothing: uint8 has no byte order."""


_STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): PlainArray,
    ("numpy._core.multiarray", "_reconstruct"): PlainArray,
    ("numpy", "ndarray"): "ndarray",  # only ever an argument
    ("numpy", "dtype"): _Uint8,
}
"""Everything that a pickle may ask for by name. They have `__setstate__`, so that a pickle cannot change them."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _STAND_INS[module, name]


def load_plain(content: bytes) -> Any:
    """What a pickle holds, texts of Python 2 as bytes, and arrays as `PlainArray`.

    Nothing is imported and nothing is called but the two classes above.

    Raises:
        NotPlain: It is damaged, or asks for anything else than arrays of uint8.
    """
    try:
        return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _BROKEN as error:
        raise NotPlain(str(error) or type(error).__name__) from None
