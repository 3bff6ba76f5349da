"""Redaction of secrets from what a server returns."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote

MIN_LENGTH = 8
"""Minimum length of redacted secrets; shorter ones, such as the placeholder `none`, occur in ordinary text."""
REDACTED = "[redacted]"


class Redactor:
    """Replaces secrets that a server may echo. Its `repr` does not reveal the secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Compute all forms of the secrets: plain, in base64 and in hex, each also escaped for URLs, JSON and HTML."""
        plain = [secret for secret in secrets if len(secret) >= MIN_LENGTH]
        forms = {form for secret in plain for raw in (secret, *_encoded(secret)) for form in _escaped(raw)}
        self._forms = sorted(forms, key=len, reverse=True)

    def redact(self, text: str) -> str:
        """Replace each secret in a text with `[redacted]`."""
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text


def _encoded(secret: str) -> Iterator[str]:
    """Yield a secret in hex, and the base64 characters that encode it inside a longer text, such as `user:SECRET`.

    A base64 character encodes 6 bits, so 4 characters encode 3 bytes. Only characters whose 6 bits all belong to the
    secret are known; which these are depends on the number of bytes before the secret, modulo 3.
    """
    raw = secret.encode()
    yield raw.hex()
    yield raw.hex().upper()
    for before in range(3):
        first, last = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        for alphabet in (b"+/", b"-_"):
            yield b64encode(bytes(before) + raw, alphabet).decode()[first:last]


def _escaped(text: str) -> Iterator[str]:
    yield text
    yield json.dumps(text)[1:-1]
    yield html.escape(text)
    yield html.escape(text, quote=False)
    yield text.replace("/", r"\/")  # JSON as written by PHP
    for safe in ("", "/"):
        quoted = quote(text, safe=safe)
        yield quoted
        yield re.sub("%..", lambda match: match[0].lower(), quoted)
