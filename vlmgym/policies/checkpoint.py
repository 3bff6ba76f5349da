"""Checkpoints: folders in Hugging Face format, or names on the Hub."""

from __future__ import annotations

import re
from pathlib import Path

from vlmgym.errors import UsageError, truncate

MAX_REASON = 400
"""Maximum characters of a library's error message."""


def resolve_checkpoint(model: str, policy: str) -> str:
    """Return the absolute path of a checkpoint folder, or its name on the Hub. Loads nothing.

    Args:
        model: Value given by the user.
        policy: Name of the policy, for error messages.

    Raises:
        UsageError: It is neither a folder with a checkpoint nor a possible name on the Hub.
    """
    if not model:
        raise UsageError(f"the policy {policy} needs --model: a checkpoint folder or a name on the Hub")
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{model} is not a checkpoint: it has no config.json")
        return str(folder.absolute())
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", model):
        raise UsageError(f"no folder {model}; names on the Hub look like Qwen/Qwen3-VL-2B-Instruct")
    return model


def error_text(error: BaseException) -> str:
    """Return a library's error message as one line."""
    return truncate(" ".join(str(error).split()) or type(error).__name__, MAX_REASON)
