"""Checks of values that users give."""

from __future__ import annotations

from vlmgym.errors import UsageError


def check_whole_number(name: str, value: object, least: int, *, optional: bool = False) -> None:
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
        raise UsageError(f"{name} is a whole number of at least {least}, not {value!r}")
