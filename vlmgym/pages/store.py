"""Storage of the episodes of a page: inline if they are small, else in a folder next to the page."""

from __future__ import annotations

import hashlib
import re
import shutil
from contextlib import suppress
from pathlib import Path

from vlmgym.runs.files import temporary, writing

INLINE_BYTES = 8_000_000
"""Maximum total size of inline episodes; a character counts as one byte."""
FILE_BYTES = 500_000
"""Target size of an episode file; one file per episode would take minutes to write and remove."""


class EpisodeStore:
    """Collects the episodes of a page in order.

    `inline` maps the name of each episode to its data. If all episodes together are too large for the page, `inline` is
    empty, and `files` maps the name of each episode to the number of its file. The folder is named after a hash of its
    contents, so that a page never loads the episodes of another page.
    """

    def __init__(self, page: Path) -> None:
        self.inline: dict[str, str] = {}
        self.files: dict[str, int] = {}
        self._folder = page.with_suffix("")
        self._unfinished = temporary(self._folder / "episodes")
        self._in_folder = False
        self._pending: dict[str, str] = {}
        self._bytes = self._count = 0
        self._digest = hashlib.sha256()
        self._name: str | None = None

    def add(self, name: str, data: str) -> None:
        """Add an episode."""
        if self._in_folder:
            self._append(name, data)
            return
        self.inline[name] = data
        self._bytes += len(data)
        if self._bytes > INLINE_BYTES:
            self._in_folder = True
            with writing(self._unfinished):
                self._unfinished.mkdir(parents=True)
            self._bytes = 0
            for earlier, text in self.inline.items():
                self._append(earlier, text)
            self.inline.clear()

    def finish(self) -> str | None:
        """Finish the folder and return its path relative to the page, or None if all episodes are inline."""
        if not self._in_folder:
            return None
        self._flush()
        self._name = self._digest.hexdigest()[:12]
        finished = self._folder / self._name
        with writing(finished):
            if finished.exists():  # the same episodes
                shutil.rmtree(finished)
            self._unfinished.rename(finished)
        return f"{self._folder.name}/{self._name}"

    def remove_others(self) -> None:
        """Remove episode folders of earlier versions of the page, which have names of 12 hexadecimal digits."""
        for folder in self._folder.glob("*"):
            if re.fullmatch(r"[0-9a-f]{12}", folder.name) and folder.name != self._name and not folder.is_symlink():
                with writing(folder):
                    shutil.rmtree(folder)
        with suppress(OSError):  # the page uses it, or it has files of the user
            self._folder.rmdir()

    def remove_unfinished(self) -> None:
        """Remove the files of an unfinished page."""
        if self._unfinished.exists():
            with writing(self._unfinished):
                shutil.rmtree(self._unfinished)

    def _append(self, name: str, data: str) -> None:
        self._pending[name] = data
        self.files[name] = self._count
        self._bytes += len(data)
        if self._bytes >= FILE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        episodes = ",\n".join(f'"{name}":{data}' for name, data in self._pending.items())
        text = f"vlmgymEpisodes({{{episodes}}});\n".encode()
        self._digest.update(text)
        path = self._unfinished / f"{self._count}.js"
        with writing(path):
            path.write_bytes(text)
        self._pending.clear()
        self._bytes = 0
        self._count += 1
