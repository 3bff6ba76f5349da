"""Secrets are redacted in every encoding."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym.policies.redaction import MIN_LENGTH, REDACTED, Redactor

keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=MIN_LENGTH, max_size=60)
around = st.text(st.characters(codec="ascii", exclude_characters=REDACTED), max_size=12)


def plain(text: str) -> str:
    return text


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def unpadded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def in_hex(text: str) -> str:
    return text.encode().hex()


def in_html(text: str) -> str:
    return html.escape(text)


def in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def in_json_of_php(text: str) -> str:
    return text.replace("/", r"\/")


def in_path(text: str) -> str:
    return quote(text)


def in_query(text: str) -> str:
    return quote(text, safe="")


def in_lower_case(text: str) -> str:
    return re.sub("%..", lambda match: match[0].lower(), quote(text, safe=""))


@pytest.mark.parametrize("code", [plain, base64, unpadded, in_hex])
@pytest.mark.parametrize("escape", [plain, in_html, in_json, in_json_of_php, in_path, in_query, in_lower_case])
@given(keys, around, around)
def test_secrets_are_redacted_in_any_encoding(
    code: Callable[[str], str], escape: Callable[[str], str], key: str, before: str, after: str
) -> None:
    sent = escape(code(before + key + after))
    left = Redactor([key]).redact(sent).replace(REDACTED, "")
    edges = 0 if code is plain else 12
    assert len(left) <= len(escape(code(before))) + len(escape(code(after))) + edges, (sent, left)


@given(keys, around)
def test_other_text_is_unchanged(key: str, text: str) -> None:
    assert Redactor([key, "none"]).redact(text) == text or key in text


def test_longer_secrets_are_redacted_first() -> None:
    assert Redactor(["secret-key", "secret-key-2"]).redact("secret-key-2") == REDACTED
