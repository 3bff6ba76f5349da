"""Decimal numbers in texts: the one form that data and answers are read by."""

from __future__ import annotations

import re

DECIMAL = r"[+\-\u2212]?(?:[0-9]{1,15}(?:\.[0-9]{1,40})?|\.[0-9]{1,40})(?:[eE]-[0-9]{1,3})?\.?"
"""A sign, which may be U+2212, digits of ASCII, an exponent as small numbers are written with, and a full stop."""
_DECIMAL = re.compile(DECIMAL)


def decimal_of(text: str) -> float | None:
    """The number that a text is, such as `-33.87`, blanks around it left out; None if it is anything else."""
    text = text.strip()
    if _DECIMAL.fullmatch(text) is None:
        return None
    return float(text.rstrip(".").replace("\u2212", "-"))
