"""Keeping secrets out of what is written and shown."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote

SHORTEST = 8
"""A key of fewer characters (`none`, `EMPTY`) is not looked for: it keeps nothing out, and occurs in ordinary texts."""
REDACTED = "[redacted]"


class Redactor:
    """Redactor that a server might send back; never shown, not even by `repr`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Take note of them as they are, in base64, and of how both look in a URL and in JSON."""
        plain = [secret for secret in secrets if len(secret) >= SHORTEST]
        forms = {form for secret in plain for raw in (secret, *_in_base64(secret)) for form in _escaped(raw)}
        self._forms = sorted(forms, key=len, reverse=True)

    def redact(self, text: str) -> str:
        """The text, with `[redacted]` for each of them."""
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text


def _in_base64(secret: str) -> Iterator[str]:
    """Yield what is the same in the base64 of every text that holds the secret, such as `user:SECRET`.

    A character of base64 is 6 bits. Those that the secret alone decides depend on how many bytes stand before it, by
    their remainder of three.
    """
    raw = secret.encode()
    for before in range(3):
        first, last = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        for alphabet in (b"+/", b"-_"):
            yield b64encode(bytes(before) + raw, alphabet).decode()[first:last]


def _escaped(text: str) -> Iterator[str]:
    yield text
    yield json.dumps(text)[1:-1]
    yield text.replace("/", r"\/")  # as PHP writes JSON
    for safe in ("", "/"):
        quoted = quote(text, safe=safe)
        yield quoted
        yield re.sub("%..", lambda match: match[0].lower(), quoted)
