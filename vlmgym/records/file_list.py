"""List of the files that vlmgym wrote to a folder, kept as a crash-safe log of changes."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from vlmgym.errors import UsageError
from vlmgym.records.files import LineLog, writing

VERSION = 1
WHOLE = "./"
"""Entry that marks the whole folder as vlmgym's while it is being built. Other entries that end with a slash are
temporary folders in it."""


class FileList:
    """Paths relative to a folder, and an id of its current contents.

    The file is untrusted: entries outside the folder are ignored. Methods raise `UsageError` if it is not a list,
    and `OutputError` if it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, None] = {}
        self._id: str | None = None
        self._inode, self._end, self._torn = 0, 0, False

    @property
    def id(self) -> str | None:
        """Id of the current contents; None without a list."""
        self.entries()
        return self._id

    def entries(self) -> dict[str, None]:
        """Return the paths, reading only lines added since the last call."""
        with writing(self.path):
            if not os.path.lexists(self.path):
                self._forget()
                return self._entries
            if self.path.is_symlink() or not self.path.is_file():
                raise self._not_a_list()
            with self.path.open("rb") as file:
                now = os.fstat(file.fileno())
                if now.st_ino != self._inode or now.st_size < self._end:
                    self._forget()
                    self._inode = now.st_ino
                file.seek(self._end)
                data = file.read()
        *lines, rest = data.split(b"\n")
        self._end += len(data) - len(rest)
        self._torn = bool(rest)
        for line in lines:
            self._take(line)
        if self._id is None and (self._end or rest):
            raise self._not_a_list()
        return self._entries

    def add(self, *entries: str) -> None:
        """Append paths, and sync them to disk."""
        self._append({"files": entries})

    def discard(self, *entries: str) -> None:
        """Remove paths from the list."""
        self._append({"removed": entries})

    def rename(self, new_id: str | None = None) -> None:
        """Change the id. Default: a new one."""
        self._append({"vlmgym": VERSION, "id": new_id or uuid4().hex})

    def _not_a_list(self) -> UsageError:
        return UsageError(f"{self.path} is not a list of files by vlmgym: move it away, or choose another folder")

    def _forget(self) -> None:
        self._entries, self._id, self._inode, self._end, self._torn = {}, None, 0, 0, False

    def _take(self, line: bytes) -> None:
        try:
            change: Any = json.loads(line)
            files, removed = change.get("files", ()), change.get("removed", ())
            if change.get("vlmgym") == VERSION and isinstance(change["id"], str):
                self._id = change["id"]
            self._entries.update({entry: None for entry in files if self._is_inside(entry)})
            for entry in removed:
                self._entries.pop(entry, None)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return  # a torn line: its files were never written

    def _append(self, change: dict[str, Any]) -> None:
        self.entries()
        if self._id is None:
            change = {"vlmgym": VERSION, "id": uuid4().hex, **change}
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with LineLog(self.path) as log:
            log.write("\n" * self._torn + json.dumps(change))
        self.entries()

    def _is_inside(self, entry: str) -> bool:
        """Return whether an entry is a path below the folder; folders must be temporary."""
        if entry == WHOLE:
            return True
        parts = PurePosixPath(entry).parts
        if not parts or ".." in parts or parts[0] == "/" or "\0" in entry or parts[-1] == self.path.name:
            return False
        return not entry.endswith("/") or (parts[-1].startswith(".") and parts[-1].endswith((".part", ".old")))
