"""Where vlmgym keeps copies of tables that are quick to read, and data that were handed over in Python."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(purpose: str) -> Path:
    """A folder below `$VLMGYM_CACHE`, or else `$XDG_CACHE_HOME/vlmgym` or `~/.cache/vlmgym`; made if need be."""
    general = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("VLMGYM_CACHE") or Path(general) / "vlmgym") / purpose
    folder.mkdir(parents=True, exist_ok=True)
    return folder
