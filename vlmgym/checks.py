"""Validation of user-supplied arguments and TOML files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vlmgym.errors import UsageError, first_line, short_repr

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")

MAX_COUNT = 2**53
"""Maximum of counts in records, such as the number of episodes; JSON readers round larger integers."""
MAX_TIMEOUT = 1_000_000
"""Maximum timeout in seconds (11 days); the system call `poll` accepts up to 24 days."""


def as_int(value: T) -> T | int:
    """Convert a NumPy integer, which can overflow and is not JSON-serialisable, to `int`; return other values as is."""
    return int(value) if isinstance(value, np.integer) else value


def check_int(name: str, value: object, minimum: int, *, optional: bool = False) -> None:
    """Raise `UsageError` unless a value is an `int` (not a bool) of at least `minimum`, or None if `optional`."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        got = f"{value!r}: write int(...)" if isinstance(value, np.integer) else short_repr(value)
        raise UsageError(f"{name} must be an integer of at least {minimum}, got {got}")


def to_int(name: str, value: T, minimum: int, *, optional: bool = False) -> T | int:
    """Convert a NumPy integer to `int` and check it; raises as `check_int`, whose arguments it has."""
    number = as_int(value)
    check_int(name, number, minimum, optional=optional)
    return number


def check_timeout(timeout: object, *, optional: bool = False) -> None:
    """Raise `UsageError` unless a timeout is positive and at most `MAX_TIMEOUT` seconds, or None if `optional`."""
    if optional and timeout is None:
        return
    number = isinstance(timeout, int | float | np.number) and not isinstance(timeout, bool)
    if not (number and 0 < timeout <= MAX_TIMEOUT):  # type: ignore[operator]
        raise UsageError(
            f"timeout must be a positive number of seconds up to {MAX_TIMEOUT:,}, got {short_repr(timeout)}"
        )


def check_instance(name: str, value: object, kind: type) -> None:
    """Raise `UsageError` unless a value is an instance of `kind`."""
    if not isinstance(value, kind):
        raise UsageError(f"{name} must be a {kind.__name__}, got {short_repr(value)}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, with or without a byte-order mark; raise `UsageError` if it cannot be read."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
        return table
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except ValueError as error:  # TOMLDecodeError, or Python's ValueError for a number with thousands of digits
        raise UsageError(f"{path} is not valid TOML: {first_line(error)}") from None
