"""Where a page keeps its episodes: in itself while they are small, otherwise in a folder beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from vlmgym.records.files import writing
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run_folder import UNFINISHED

INLINE_BYTES = 8_000_000
"""Total size up to which the page holds all episodes itself."""
FILE_BYTES = 500_000
"""Size at which a file beside the page is complete. A file per episode takes minutes to write and remove."""


class EpisodeStore:
    """Collects the episodes of a page in order.

    The folder beside the page is named after the hash of its contents, so a page never finds the episodes of another.

    Attributes:
        inline: Episodes that the page holds itself, by name.
        files: Number of the file that holds an episode, by the episode's name.
    """

    def __init__(self, page: Path, output: OutputFolder) -> None:
        """Start empty.

        Args:
            page: The page.
            output: The folder that it lies in.
        """
        self.inline: dict[str, str] = {}
        self.files: dict[str, int] = {}
        self._folder = page.with_suffix("")
        self._output = output
        self._unfinished = self._folder / UNFINISHED
        self._beside = False
        self._pending: dict[str, str] = {}
        self._bytes = self._count = 0
        self._digest = hashlib.sha256()
        self._name: str | None = None

    def add(self, name: str, data: str) -> None:
        """Keep an episode.

        Raises:
            OutputError: A file cannot be written.
        """
        if self._beside:
            self._append(name, data)
            return
        self.inline[name] = data
        self._bytes += len(data)
        if self._bytes > INLINE_BYTES:
            self._beside = True
            self._output.make_temporary(self._unfinished)
            self._bytes = 0
            for earlier, text in self.inline.items():
                self._append(earlier, text)
            self.inline.clear()

    def place(self) -> str | None:
        """Finish the folder and return its path relative to the page, or None if the page holds the episodes itself.

        Raises:
            OutputError: A file cannot be written.
        """
        if not self._beside:
            return None
        self._flush()
        self._name = self._digest.hexdigest()[:12]
        self._output.put(self._unfinished, self._folder / self._name)
        return f"{self._folder.name}/{self._name}"

    def remove_others(self) -> None:
        """Remove the episodes of earlier pages of the same name."""
        folders = {path.parent for path in self._output.owned() if path.parent.parent == self._folder}
        self._output.remove(*(folder for folder in folders if folder.name != self._name))

    def remove_unfinished(self) -> None:
        """Remove what an error left behind."""
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
