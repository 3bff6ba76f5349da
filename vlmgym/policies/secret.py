"""Keeping secrets out of what is written and shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote

SHORTEST = 8
"""A key of fewer characters (`none`, `EMPTY`) is not looked for: it keeps nothing out, and occurs in ordinary texts."""
HIDDEN = "[secret]"


class Secrets:
    """Secrets that a server might send back; never shown, not even by `repr`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Take note of them, and of how they look in a URL and in JSON."""
        forms = {form for secret in secrets for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])}
        self._forms = sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text, with `[secret]` for each of them."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text
