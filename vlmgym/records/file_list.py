"""List of the files that vlmgym wrote to a folder, stored as a crash-safe log of changes."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from vlmgym.errors import UsageError
from vlmgym.records.files import LineLog, writing

VERSION = 1


class FileList:
    """The list: an id of the folder's current contents, and paths relative to the folder.

    A path that ends with a slash is a temporary folder. The list's file is untrusted: entries outside the folder are
    ignored. Methods raise `UsageError` if the file is not such a list, and `OutputError` if it cannot be read or
    written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str | None:
        """Id of the current contents; None if there is no list."""
        return self._read()[0]

    def entries(self) -> dict[str, None]:
        """Return the paths, oldest first."""
        return self._read()[1]

    def add(self, *entries: str) -> None:
        """Append paths, and sync them to disk."""
        self._append({"files": entries})

    def discard(self, *entries: str) -> None:
        """Remove paths from the list."""
        self._append({"removed": entries})

    def rename(self, new_id: str | None = None) -> None:
        """Change the id, by default to a random one."""
        self._append({"vlmgym": VERSION, "id": new_id or uuid4().hex})

    def _read(self) -> tuple[str | None, dict[str, None]]:
        list_id, entries = None, dict[str, None]()
        with writing(self.path):
            if not os.path.lexists(self.path):
                return list_id, entries
            regular = self.path.is_file() and not self.path.is_symlink()
            data = self.path.read_bytes() if regular else b""
        for line in data.splitlines():
            try:
                change: Any = json.loads(line)
                files, removed = change.get("files", ()), change.get("removed", ())
                if change.get("vlmgym") == VERSION and isinstance(change["id"], str):
                    list_id = change["id"]
                entries.update({entry: None for entry in files if self._is_inside(entry)})
                for entry in removed:
                    entries.pop(entry, None)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # a torn line: its files were never written
        if not regular or (data and list_id is None):
            raise UsageError(f"{self.path} is not a list of files by vlmgym: move it away, or choose another folder")
        return list_id, entries

    def _append(self, change: dict[str, Any]) -> None:
        if self.id is None:
            change = {"vlmgym": VERSION, "id": uuid4().hex, **change}
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with LineLog(self.path) as log:
            log.write(json.dumps(change))

    def _is_inside(self, entry: str) -> bool:
        """Return whether an entry names a file other than the list, or a temporary folder, below the list's folder."""
        parts = PurePosixPath(entry).parts
        if not parts or ".." in parts or parts[0] == "/" or "\0" in entry or parts[-1] == self.path.name:
            return False
        return not entry.endswith("/") or (parts[-1].startswith(".") and parts[-1].endswith(".part"))
