"""Checks of values that users give."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from vlmgym.errors import UsageError, short_repr

T = TypeVar("T")


def as_int(value: T) -> T | int:
    """Python's number for a whole number of NumPy's, whose sums wrap and which JSON does not take; else the value."""
    return int(value) if isinstance(value, np.integer) else value


def check_int(name: str, value: object, least: int, *, optional: bool = False) -> None:
    """Refuse what is no whole number of at least `least`; `True` is none, though Python's int.

    Args:
        name: What the user calls it.
        value: What was given.
        least: The least that is accepted.
        optional: Whether None is accepted, too.

    Raises:
        UsageError: It is not accepted.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        told = f"{value!r}: write int(...)" if isinstance(value, np.integer) else short_repr(value)
        raise UsageError(f"{name} is a whole number of at least {least}, not {told}")


def check_bool(name: str, value: object) -> None:
    """Refuse what is neither True nor False.

    Raises:
        UsageError: It is not.
    """
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name} is True or False, not {short_repr(value)}")


def check_instance(name: str, value: object, kind: type) -> None:
    """Refuse what is not of a type.

    Raises:
        UsageError: It is not.
    """
    if not isinstance(value, kind):
        raise UsageError(f"{name} is a {kind.__name__}, not {short_repr(value)}")
