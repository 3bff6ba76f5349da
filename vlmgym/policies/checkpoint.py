"""Where a model's weights are: a folder in Hugging Face's layout, or the name of a repository on its hub."""

from __future__ import annotations

import re
from pathlib import Path

from vlmgym.errors import UsageError, truncate

MAX_REASON = 400
"""Characters of a library's message that are shown."""


def resolve_checkpoint(model: str, policy: str) -> str:
    """The folder, absolute, or the hub's name, as a model's library takes it; nothing is loaded yet.

    Args:
        model: What the user gave.
        policy: Who asks, for messages.

    Raises:
        UsageError: It is neither a folder with a model nor can it be a name on the hub.
    """
    if not model:
        raise UsageError(f"the policy {policy} needs a --model: the folder of a checkpoint, or a name on the hub")
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"the folder {model} holds no checkpoint: there is no config.json in it")
        return str(folder.absolute())
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", model):
        raise UsageError(f"there is no folder {model}, and a name on the hub looks like Qwen/Qwen3-VL-2B-Instruct")
    return model


def error_text(error: BaseException) -> str:
    """What a library said went wrong, in one line."""
    return truncate(" ".join(str(error).split()) or type(error).__name__, MAX_REASON)
