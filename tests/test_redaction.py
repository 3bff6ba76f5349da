"""Secrets are redacted in every encoding."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym.policies.redaction import MIN_LENGTH, REDACTED, Redactor

keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=MIN_LENGTH, max_size=60)
around = st.text(st.characters(codec="ascii", exclude_characters=REDACTED), max_size=12)


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda text: b64encode(text.encode()).decode(),
    "unpadded": lambda text: urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(),
}
ESCAPES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "html": html.escape,
    "json": lambda text: json.dumps(text)[1:-1],
    "json of php": lambda text: text.replace("/", r"\/"),
    "path": quote,
    "query": lambda text: quote(text, safe=""),
    "lower case": lambda text: re.sub("%..", lambda match: match[0].lower(), quote(text, safe="")),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("escape", ESCAPES)
@given(keys, around, around)
@settings(max_examples=15)
def test_secrets_are_redacted_in_any_encoding(encoding: str, escape: str, key: str, before: str, after: str) -> None:
    def sent(text: str) -> str:
        return ESCAPES[escape](ENCODINGS[encoding](text))

    left = Redactor([key]).redact(sent(before + key + after)).replace(REDACTED, "")
    edges = 0 if encoding == "plain" else 12
    assert len(left) <= len(sent(before)) + len(sent(after)) + edges, left


@given(keys, around)
def test_other_text_is_unchanged(key: str, text: str) -> None:
    assert Redactor([key, "none"]).redact(text) == text or key in text


def test_longer_secrets_are_redacted_first() -> None:
    assert Redactor(["secret-key", "secret-key-2"]).redact("secret-key-2") == REDACTED
