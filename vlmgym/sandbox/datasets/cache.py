"""Cached files, shared by processes and kept between runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path


def cache_folder(purpose: str) -> Path:
    """Create and return folder `purpose` in `$VLMGYM_CACHE`, else `$XDG_CACHE_HOME/vlmgym`, else `~/.cache/vlmgym`."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vlmgym"
    folder = Path(os.environ.get("VLMGYM_CACHE") or default) / purpose
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def cached_file(purpose: str, key: str, suffix: str, write: Callable[[Path], None]) -> Path:
    """Return the cached file for a key. The first process to ask writes the file, while others wait."""
    path = cache_folder(purpose) / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{suffix}"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_suffix(".part")
            write(unfinished)
            os.replace(unfinished, path)
    return path
