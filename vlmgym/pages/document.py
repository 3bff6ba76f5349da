"""Parts that all pages share: the document with its content security policy, and the encoding of recorded text."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from PIL import Image
from pydantic_core import to_json

from vlmgym import __version__
from vlmgym.evaluation.tables import format_estimate
from vlmgym.runs.record import Estimate
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.response_format import parse_response

LOSSLESS_BYTES_PER_PIXEL = 0.5
"""Tiles whose lossless WebP exceeds both this and 1 KiB (noise, photographs) are stored as JPEG."""
QUALITY = 90
"""JPEG quality of lossy tiles: noise changes by about 4 out of 255 on average, and takes half as many bytes."""


def asset(name: str) -> str:
    """Read a file from `assets`."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


SCRIPTS = {
    "report": ("texts", "table", "overview", "curves", "list", "pane", "viewer", "live", "main"),
    "diagnosis": ("texts", "table", "diagnosis"),
    "leaderboard": ("texts", "table", "leaderboard"),
    "runs": ("texts", "table", "live", "runs"),
    "training": ("texts", "table", "curves", "live", "training"),
    "play": ("texts", "table", "live", "play"),
}
"""Scripts in `assets`, in concatenation order, by the kind of page."""


def app(kind: str, page: Mapping[str, Any], blocks: Sequence[str] = ()) -> str:
    """Return the HTML of a page that its scripts build from data.

    Args:
        kind: Kind of page, a key of `SCRIPTS`.
        page: Data of the page, with its `title`; a page with `live` may send requests to its server.
        blocks: HTML of further data.
    """
    page = {"madeBy": f"vlmgym {__version__}", **page}
    data = f'<script type="application/json" id="page">{safe_json(page)}</script>'
    script = "(() => {\n'use strict';\n" + "\n".join(asset(f"{name}.js") for name in SCRIPTS[kind]) + "})();\n"
    body = Template(asset("app.html")).substitute(data="\n".join([data, *blocks]))
    return document(page["title"], "app", body, script, connect="live" in page)


def document(title: str, name: str, body: str, script: str = "", *, connect: bool = False) -> str:
    """Return the HTML of a page that contains all its styles and scripts.

    Args:
        title: Title of the page.
        name: Name of the page's style sheet in `assets`.
        body: HTML of the body.
        script: The page's script, the only one that its content security policy allows.
        connect: Let the script send requests to the server of the page.
    """
    style = asset("base.css") + asset(f"{name}.css")
    policy = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    if script:
        body += f"<script>{script}</script>"
        policy.append(f"script-src {_hash(script)}")
    if connect:
        policy.append("connect-src 'self'")
    return Template(asset("document.html")).substitute(
        title=escape(title),
        style=style,
        body=body,
        policy="; ".join([*policy, "base-uri 'none'", "form-action 'none'"]),
    )


def cell(text: str, key: float | str | None = None, **more: Any) -> dict[str, Any]:
    """Return a cell of a table that can be sorted.

    Args:
        text: Text of the cell.
        key: Number or text to sort by, by default the text; cells without text come last.
        more: `bar`, a score with its 95% interval as (low, mean, high), of which the part from 0 to 1 is drawn;
            `href`, a link; `progress`, a share from 0 to 1.
    """
    return {"text": text, "key": (text or None) if key is None else key, **more}


def estimate_cell(value: Estimate | None, *, bar: bool = False) -> dict[str, Any]:
    """Return the cell of a mean with its standard error, with its 95% interval as a bar if asked for."""
    if value is None:
        return cell("")
    error = 1.96 * (value[1] or 0.0)
    drawn = {"bar": (value[0] - error, value[0], value[0] + error)} if bar else {}
    return cell(format_estimate(value), value[0], **drawn)


def number_cell(value: float | None, form: str) -> dict[str, Any]:
    """Return the cell of a number, or an empty one."""
    return cell("") if value is None else cell(format(value, form), value)


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def marked(response: str) -> list[tuple[str, str]]:
    """Split a response into pieces, each with the name of its section, or "" outside all sections.

    Tags are part of the text. Only a perception or answer that counts towards the score is named `perception` or
    `answer`. Thoughts, comments and all other perceptions are named `think`.
    """
    pieces, end = [], 0
    for name, start, next_end in parse_response(response).spans():
        pieces += [("", response[end:start]), (name, response[start:next_end])]
        end = next_end
    return [piece for piece in [*pieces, ("", response[end:])] if piece[1]]


def rounded(values: Iterable[float]) -> list[float]:
    """Round the numbers of a curve to six significant digits."""
    return [float(f"{value:.6g}") for value in values]


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
