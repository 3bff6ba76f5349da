"""Pickles of others, read without running anything of theirs: plain containers, texts, numbers and arrays of bytes."""

from __future__ import annotations

import io
import pickle
import pickletools
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import VlmgymError

_OPCODES = (
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 SHORT_BINSTRING BINSTRING BINUNICODE "
    "EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "GLOBAL REDUCE BUILD BINPUT LONG_BINPUT BINGET LONG_BINGET"
)
OPCODES = frozenset(_OPCODES.split())
"""What protocol 2 writes for plain data and arrays; not among them are those that make objects of classes otherwise."""

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
        if not (isinstance(kind, _Uint8) and isinstance(content, bytes)):
            raise ValueError("an array is not one of uint8")
        if not (isinstance(shape, tuple) and all(isinstance(length, int) and length >= 0 for length in shape)):
            raise ValueError("the shape of an array is not a tuple of lengths")
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
    """What a pickle of protocol 2 or lower holds, texts of Python 2 as bytes, and arrays as `PlainArray`.

    Nothing is imported, nothing is called but the two classes above, and memory stays in proportion to the length.

    Raises:
        NotPlain: It is damaged, or asks for anything else than arrays of uint8.
    """
    try:
        _check_opcodes(content)
        return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _BROKEN as error:
        raise NotPlain(" ".join(str(error).split()) or type(error).__name__) from None


def _check_opcodes(content: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on strange escapes in texts, which are refused
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name not in OPCODES:
                raise NotPlain(f"it has the opcode {opcode.name}")
            if opcode.name == "LONG_BINPUT" and int(argument or 0) > len(content):  # the memo would be as large
                raise NotPlain(f"it has {argument} memoised objects in {len(content)} bytes")
