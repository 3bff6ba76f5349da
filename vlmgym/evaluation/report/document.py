"""What every page shares: style, and the policy that lets it run and load nothing but its own."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files


def asset(name: str) -> str:
    """The text of a file of `assets`."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def content_policy(style: str, script: str = "", more: str = "") -> str:
    """A content security policy for a page that holds all it needs.

    Args:
        style: Its only style.
        script: Its only script; empty: it has none.
        more: What that script may do besides, as the policy says it.
    """
    policy = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    if script:
        policy.append(f"script-src {_hash(script)}{more}")
    return "; ".join([*policy, "base-uri 'none'", "form-action 'none'"])


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
