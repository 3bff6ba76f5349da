"""Storage of the episodes of a page: inline if they are small, else in a folder next to the page."""

from __future__ import annotations

import hashlib
from pathlib import Path

from vlmgym.records.files import writing
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run_folder import UNFINISHED

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

    def __init__(self, page: Path, output: OutputFolder) -> None:
        self.inline: dict[str, str] = {}
        self.files: dict[str, int] = {}
        self._folder = page.with_suffix("")
        self._output = output
        self._unfinished = self._folder / UNFINISHED
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
            self._output.make_temporary(self._unfinished)
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
        self._output.put(self._unfinished, self._folder / self._name)
        return f"{self._folder.name}/{self._name}"

    def remove_others(self) -> None:
        """Remove episode folders of earlier versions of the page."""
        folders = {path.parent for path in self._output.owned() if path.parent.parent == self._folder}
        self._output.remove(*(folder for folder in folders if folder.name != self._name))

    def remove_unfinished(self) -> None:
        """Remove the files of an unfinished page."""
        self._output.remove(self._unfinished)

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
