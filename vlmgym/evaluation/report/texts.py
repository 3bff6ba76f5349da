"""Recorded texts as the page shows them: sections marked, very long ones shortened, and JSON that is safe in HTML."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pydantic_core import to_json

from vlmgym.errors import ParseError
from vlmgym.sandbox import response_form

LONGEST = 20_000
"""Characters of a text that the page shows; the record has all of it."""
_TAIL = 4_000


def shown(text: str) -> Any:
    """The text, or of a very long one its `head`, its `tail` and how many characters were `left_out` between."""
    if len(text) <= LONGEST:
        return text
    head = LONGEST - _TAIL
    return {"head": text[:head], "left_out": len(text) - LONGEST, "tail": text[-_TAIL:]}


def marked(response: str) -> list[tuple[str, Any]]:
    """A response as pieces: the name of a section with its tags, or "" for what is outside, and the text.

    Only what vlmgym reads as a section is marked: one that is opened once and closed once. Where one section lies
    within another, the piece belongs to the inner one.
    """
    spans = []
    for name in response_form.SECTIONS:
        try:
            response_form.section(response, name)
        except ParseError:
            continue
        start = response.index(f"<{name}>")
        spans.append((start, response.index(f"</{name}>", start) + len(name) + 3, name))
    edges = sorted({0, len(response), *(edge for start, end, _ in spans for edge in (start, end))})
    pieces = []
    for start, end in pairwise(edges):
        around = [(last - first, name) for first, last, name in spans if first <= start and end <= last]
        pieces.append((min(around)[1] if around else "", shown(response[start:end])))
    return pieces


def safe_json(data: Any) -> str:
    """JSON that can stand inside a script element of HTML: it cannot end the element, or open a comment in it.

    Numbers that JSON cannot hold (infinities, NaN) become null.
    """
    text = to_json(data, inf_nan_mode="null").decode()
    for sign in "<>&\u2028\u2029":  # occur in strings only
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
