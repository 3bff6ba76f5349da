"""Parts that all pages share: assets, content security policy, and the encoding of recorded text."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from pydantic_core import to_json

from vlmgym.sandbox.core.response_format import parse_response

LONGEST = 20_000
"""Maximum number of characters in a text on the page; longer texts are cut in the middle."""
_TAIL = 4_000


def asset(name: str) -> str:
    """Read a file from `assets`."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def content_policy(style: str, script: str = "", more: str = "") -> str:
    """Build the content security policy of a page with this style sheet and script; `more` extends `script-src`."""
    policy = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    if script:
        policy.append(f"script-src {_hash(script)}{more}")
    return "; ".join([*policy, "base-uri 'none'", "form-action 'none'"])


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def shown(text: str) -> Any:
    """Return a text or, if it is long, its `head`, its `tail` and the number of characters `left_out` between them."""
    if len(text) <= LONGEST:
        return text
    head = LONGEST - _TAIL
    return {"head": text[:head], "left_out": len(text) - LONGEST, "tail": text[-_TAIL:]}


def marked(response: str) -> list[tuple[str, Any]]:
    """Split a response into pieces, each with the name of its section, or "" outside all sections.

    Tags are part of the text. Only a perception or answer that counts towards the score is named `perception` or
    `answer`. Thoughts, comments and all other perceptions are named `think`.
    """
    pieces, end = [], 0
    for name, start, next_end in parse_response(response).spans():
        pieces += [("", shown(response[end:start])), (name, shown(response[start:next_end]))]
        end = next_end
    return [piece for piece in [*pieces, ("", shown(response[end:]))] if piece[1]]


def safe_json(data: Any) -> str:
    """Serialise JSON that can be embedded in an HTML script element.

    Numbers that JSON cannot hold (infinities, NaN) become null.
    """
    text = to_json(data, inf_nan_mode="null").decode()
    for sign in "<>&\u2028\u2029":  # only occur in strings
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
