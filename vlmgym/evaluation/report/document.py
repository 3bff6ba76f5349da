"""Style and content security policy shared by all pages."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files


def asset(name: str) -> str:
    """Read a file from `assets`."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def content_policy(style: str, script: str = "", more: str = "") -> str:
    """Build the content security policy of a page with this style sheet and script, and `more` sources of scripts."""
    policy = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    if script:
        policy.append(f"script-src {_hash(script)}{more}")
    return "; ".join([*policy, "base-uri 'none'", "form-action 'none'"])


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
