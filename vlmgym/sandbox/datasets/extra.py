"""Libraries of the extras `data` and `tasks`, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from vlmgym.errors import missing_extra, shorten

LONGEST_MESSAGE = 200


def library(name: str, purpose: str, extra: str = "data") -> Any:
    """A library of an extra.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_extra(purpose, f"{name} ({error})", extra) from None


def download_failures() -> tuple[type[Exception], ...]:
    """What `huggingface_hub` raises when the hub does not answer or refuses; it has changed its HTTP library."""
    return (OSError, library("huggingface_hub.errors", "the hub").HTTPError)


def one_line(error: Exception) -> str:
    """An error's message on one line, not longer than a sentence; its name if there is none."""
    return shorten(" ".join(str(error).split()), LONGEST_MESSAGE) or type(error).__name__
