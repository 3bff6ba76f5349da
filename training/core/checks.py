"""What options that are numbers may be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vlmgym.errors import UsageError


def check_numbers(config: object, *, at_least_0: Sequence[str] = (), above_0: Sequence[str] = ()) -> None:
    """Refuse numbers that are too small, not finite or no number; None is no number that is checked.

    Args:
        config: What holds them.
        at_least_0: Names of its numbers that may be 0.
        above_0: Names of those that may not.

    Raises:
        UsageError: One is refused.
    """
    for name in (*at_least_0, *above_0):
        value: float | None = getattr(config, name)
        if value is not None and not (math.isfinite(value) and (value > 0 or (value == 0 and name in at_least_0))):
            least = "at least 0" if name in at_least_0 else "more than 0"
            raise UsageError(f"{name} is a number, {least}, not {value}")
