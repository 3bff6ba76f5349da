"""Recorded texts as the page shows them: sections marked, very long ones shortened, and JSON that is safe in HTML."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from vlmgym.sandbox.core.response_format import parse_response

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
    """Split a response into pieces: a section's name, or "" outside all sections, and the text with its tags.

    Every thought counts as `think`, however it is written; perception and answer are those that are scored.
    """
    pieces, end = [], 0
    for name, start, next_end in parse_response(response).spans():
        pieces += [("", shown(response[end:start])), (name, shown(response[start:next_end]))]
        end = next_end
    return [piece for piece in [*pieces, ("", shown(response[end:]))] if piece[1]]


def safe_json(data: Any) -> str:
    """JSON that can stand inside a script element of HTML: it cannot end the element, or open a comment in it.

    Numbers that JSON cannot hold (infinities, NaN) become null.
    """
    text = to_json(data, inf_nan_mode="null").decode()
    for sign in "<>&\u2028\u2029":  # occur in strings only
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
