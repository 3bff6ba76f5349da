"""Parse decimal numbers in data and answers."""

from __future__ import annotations

import re

DECIMAL = r"[+\-\u2212]?(?:[0-9]{1,15}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:[eE]-[0-9]{1,3})?\.?"
"""Optional sign (also U+2212), ASCII digits, optional negative exponent, optional full stop."""
_DECIMAL = re.compile(DECIMAL)


def decimal_of(text: str) -> float | None:
    """Parse a number such as `-33.87`, ignoring surrounding whitespace; None if the text is anything else."""
    text = text.strip()
    if _DECIMAL.fullmatch(text) is None:
        return None
    return float(text.rstrip(".").replace("\u2212", "-"))
