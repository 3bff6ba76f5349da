"""Import libraries of optional extras when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vlmgym.errors import missing_extra, truncate


def library(name: str, purpose: str, extra: str = "data") -> Any:
    """Import a library of an optional extra; if it is missing, raise `UsageError`, which says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_extra(purpose, f"{name} ({error})", extra) from None


def download_failures() -> tuple[type[Exception], ...]:
    """Exceptions that `huggingface_hub` raises if the Hub is unreachable or rejects a request."""
    return (OSError, library("huggingface_hub.errors", "the Hub").HTTPError)


def one_line(error: Exception) -> str:
    """Format an error as one line: its message, truncated to 200 characters, or its type if it has no message."""
    return truncate(" ".join(str(error).split()), 200) or type(error).__name__
