"""The list of the files in a folder that vlmgym wrote, as a log of changes that a kill cannot spoil."""

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
"""Entry of a folder that is still being built, all of which is vlmgym's. Other entries that end with a slash are
temporary folders inside."""


class FileList:
    """Paths relative to a folder, and an id of what was written there last.

    The list is data: an entry that leads out of the folder is ignored.
    """

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is touched yet."""
        self.path = path
        self._entries: dict[str, None] = {}
        self._id: str | None = None
        self._inode, self._end, self._torn = 0, 0, False

    @property
    def id(self) -> str | None:
        """Identifies what was written last; None where there is no list."""
        self.entries()
        return self._id

    def entries(self) -> dict[str, None]:
        """The paths; of a list that has grown since the last call only the new lines are read.

        Raises:
            UsageError: The file is something else.
            OutputError: It cannot be read.
        """
        with writing(self.path):
            if not os.path.lexists(self.path):
                self._forget()
                return self._entries
            if self.path.is_symlink() or not self.path.is_file():
                raise self._something_else()
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
            raise self._something_else()
        return self._entries

    def add(self, *entries: str) -> None:
        """Append paths; they are on the disk when this returns.

        Raises:
            OutputError: The list cannot be written.
        """
        self._append({"files": entries})

    def discard(self, *entries: str) -> None:
        """Take paths off the list.

        Raises:
            OutputError: The list cannot be written.
        """
        self._append({"removed": entries})

    def rename(self, new_id: str | None = None) -> None:
        """Change the id, by default to a new one.

        Raises:
            OutputError: The list cannot be written.
        """
        self._append({"vlmgym": VERSION, "id": new_id or uuid4().hex})

    def _something_else(self) -> UsageError:
        return UsageError(f"{self.path} is no list of vlmgym's files: move it away, or name another folder")

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
            return  # torn by a kill: what it would have listed was never written

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
        """Whether an entry is a path below the folder; one of a folder is accepted only if it is temporary."""
        if entry == WHOLE:
            return True
        parts = PurePosixPath(entry).parts
        if not parts or ".." in parts or parts[0] == "/" or "\0" in entry or parts[-1] == self.path.name:
            return False
        return not entry.endswith("/") or (parts[-1].startswith(".") and parts[-1].endswith((".part", ".old")))
