"""Parts that all pages share: the document with its content security policy, and the encoding of recorded text."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from PIL import Image
from pydantic_core import to_json

from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.response_format import parse_response

LOSSLESS_BYTES_PER_PIXEL = 0.5
"""Tiles whose lossless WebP exceeds both this and 1 KiB (noise, photographs) are stored as JPEG."""
QUALITY = 90
"""JPEG quality of lossy tiles: noise changes by about 4 out of 255 on average, and takes half as many bytes."""
LONGEST = 20_000
"""Maximum number of characters in a text on the page; longer texts are cut in the middle."""
_TAIL = 4_000


def asset(name: str) -> str:
    """Read a file from `assets`."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def document(title: str, name: str, parts: Mapping[str, str], script: str = "") -> str:
    """Return the HTML of a page that contains all its styles and scripts.

    Args:
        title: Title of the page.
        name: Name of the page's style sheet and of the template of its body in `assets`.
        parts: HTML of the placeholders in the template.
        script: The page's script, the only one that its content security policy allows.
    """
    style = asset("base.css") + asset(f"{name}.css")
    body = Template(asset(f"{name}.html")).substitute(parts)
    policy = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    if script:
        body += f"<script>{script}</script>"
        policy.append(f"script-src {_hash(script)}")
    return Template(asset("document.html")).substitute(
        title=escape(title),
        style=style,
        body=body,
        policy="; ".join([*policy, "base-uri 'none'", "form-action 'none'"]),
    )


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


def data_url(image: ImageArray) -> str:
    """Encode an image as lossless WebP, or as JPEG for noise and photographs."""
    kind, file, tile = "webp", io.BytesIO(), Image.fromarray(image)
    tile.save(file, "WEBP", lossless=True, method=1, quality=20)
    if file.tell() > max(1024, LOSSLESS_BYTES_PER_PIXEL * tile.width * tile.height):
        kind, file = "jpeg", io.BytesIO()
        tile.save(file, "JPEG", quality=QUALITY, subsampling="4:4:4")
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
