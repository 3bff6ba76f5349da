"""Folders that commands write into, each with a list of the files that vlmgym wrote there."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.records.file_list import WHOLE, FileList
from vlmgym.records.files import OutputError, replace_file, writing

MARKER = ".vlmgym.jsonl"
"""Name of the list in the folder."""


class OutputFolder:
    """A folder and the list of the files in it that belong to vlmgym.

    A file is listed before it is written, so a kill at any moment leaves none unlisted. Only listed files are replaced,
    moved or removed, and none that a symbolic link leads to.
    """

    def __init__(self, folder: Path, marker: Path | None = None) -> None:
        """Name the folder; nothing is touched yet.

        Args:
            folder: Holds the files.
            marker: The list, if it is not in the folder itself.
        """
        self.folder = folder.absolute()  # a policy may change the current folder
        self.list = FileList(marker or self.folder / MARKER)

    @contextmanager
    def reserved(self, *, adopt: bool = False) -> Iterator[None]:
        """Make the folder if needed, and keep other processes from reserving it.

        Args:
            adopt: Accept a folder that holds files but no list; new files may be added to it.

        Raises:
            UsageError: The folder holds files and no list, or it is a file.
            OutputError: Another process has reserved it, or it cannot be written.
        """
        with writing(self.folder):
            made = self._make_folder(adopt)
            lock = os.open(self.list.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            with writing(self.folder):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not os.path.samestat(os.fstat(lock), os.stat(self.list.path)):
                        raise FileNotFoundError
                except (BlockingIOError, FileNotFoundError):  # not found: its last holder removed it in the meantime
                    raise OutputError(f"another run is writing {self.folder}: choose another --output-dir") from None
            new = self.list.id is None
            try:
                if new:
                    self.list.rename()
                yield
            finally:
                if not self.list.entries() and (new or self.is_empty()):
                    with writing(self.folder):
                        self.list.path.unlink(missing_ok=True)
                    if made:
                        with suppress(OSError):
                            self.folder.rmdir()
        finally:
            os.close(lock)

    def check_own(self) -> None:
        """Refuse a folder that others filled.

        Raises:
            UsageError: It holds files and no list, or it is a file.
            OutputError: It cannot be read.
        """
        with writing(self.folder):
            if self._exists() and self.list.id is None:
                self._refuse_foreign()

    def check(self, *paths: Path) -> None:
        """Refuse to write where something is that vlmgym did not write.

        Args:
            paths: Files below the folder.

        Raises:
            UsageError: One is there and not listed, or is to be reached through a link or a file.
            OutputError: The folder cannot be read.
        """
        listed, folders = self.list.entries(), set[Path]()
        for path in paths:
            with writing(path):
                for parent in self._parents(path):
                    if parent not in folders and not stat.S_ISDIR(mode_of(parent, stat.S_IFDIR)):
                        raise foreign(parent)
                    folders.add(parent)
                entry, mode = self._entry(path), mode_of(path)
            ours = (stat.S_ISREG(mode) and entry in listed) or (stat.S_ISDIR(mode) and f"{entry}/" in listed)
            if mode and not ours:
                raise foreign(path)

    def check_all_of(self, folder: Path) -> None:
        """Refuse to replace a folder that holds a file of others.

        Raises:
            UsageError: It does, or is no folder.
            OutputError: It cannot be read.
        """
        if os.path.lexists(folder) and not self.owns_all_of(folder):
            raise foreign(folder)

    def claim(self, *paths: Path) -> None:
        """List files, which may then be written.

        Raises:
            UsageError: One is there and not listed, or is to be reached through a link or a file.
            OutputError: The list cannot be written.
        """
        self.check(*paths)
        if new := [entry for entry in map(self._entry, paths) if entry not in self.list.entries()]:
            self.list.add(*new)

    def write(self, path: Path, data: bytes | Iterable[bytes]) -> None:
        """List a file and write it as a whole, with the folders above it.

        Raises:
            UsageError: It is there and not listed.
            OutputError: It cannot be written.
        """
        self.claim(path)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)

    def owned(self) -> list[Path]:
        """The listed files that are there."""
        with writing(self.folder):
            return [path for entry in self.list.entries() if self._is_file(path := self.folder / entry)]

    def owns_all_of(self, folder: Path) -> bool:
        """Whether every file below a folder is listed."""
        listed = {self.list.path, *self.owned()}
        with writing(folder):
            return stat.S_ISDIR(mode_of(folder)) and all(
                path in listed or (path.is_dir() and not path.is_symlink()) for path in folder.rglob("*")
            )

    def is_empty(self) -> bool:
        """Whether the folder holds nothing, but perhaps the list."""
        with writing(self.folder):
            return self.folder.is_dir() and {*self.folder.iterdir()} <= {self.list.path}

    def remove(self, *paths: Path) -> None:
        """Remove the listed files among these paths and below them, and folders that are empty then.

        Raises:
            OutputError: A file cannot be removed.
        """
        entries = [name for name in self.list.entries() if any(_is_below(self.folder / name, path) for path in paths)]
        emptied = set[Path]()
        for entry in entries:
            path = self.folder / entry
            with writing(path):
                if entry.endswith("/") and entry != WHOLE:
                    self._remove_temporary(path)
                elif self._is_file(path):
                    path.unlink()
            emptied.update(self._parents(path))
        if entries:
            self.list.discard(*entries)
        for folder in sorted(emptied, reverse=True):
            with suppress(OSError):  # others put something there
                folder.rmdir()

    def move(self, other: OutputFolder) -> None:
        """Move all listed files to another folder, with the id, and take a new one.

        After a kill in between, the other folder has the id of this one: the same call completes the move.

        Raises:
            UsageError: The other folder has a file of the same name.
            OutputError: A file cannot be moved.
        """
        if other.list.id != self.list.id:
            other.list.rename(self.list.id)
        files = self.owned()
        targets = [other.folder / path.relative_to(self.folder) for path in files]
        for target in targets:
            if os.path.lexists(target):
                raise foreign(target)
        other.claim(*targets)
        for path, target in zip(files, targets):
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
        self.remove(self.folder)
        self.list.rename()

    @contextmanager
    def building(self, final: Path) -> Iterator[Path]:
        """A folder to write into, which takes the place of `final` once it is whole.

        Raises:
            UsageError: `final` holds files that are not listed.
            OutputError: It cannot be written; what `final` was stays.
        """
        self.check_all_of(final)
        part = final.with_name(f".{final.name}.part")
        self.make_temporary(part)
        yield part
        with writing(final):
            for file in part.rglob("*"):
                if file.is_file():
                    with file.open("rb") as opened:
                        os.fsync(opened.fileno())
        self.put(part, final)

    def make_temporary(self, part: Path) -> None:
        """Make an empty folder to write into, which is removed as a whole after a kill.

        Raises:
            UsageError: Something is there that vlmgym did not write.
            OutputError: It cannot be made.
        """
        self.check(part)
        with writing(part):
            self._remove_temporary(part)
            self.list.add(f"{self._entry(part)}/")
            part.mkdir(parents=True)

    def put(self, part: Path, final: Path) -> None:
        """Give a temporary folder its final name, its files listed, in place of a folder of which all files are listed.

        Raises:
            UsageError: `final` holds files that are not listed.
            OutputError: It cannot be written.
        """
        with writing(final):
            files = [self._entry(final / path.relative_to(part)) for path in part.rglob("*") if path.is_file()]
            self.check_all_of(final)
            replaced = os.path.lexists(final)
            old = final.with_name(f".{final.name}.old")
            before = [name for name in self.list.entries() if _is_below(self.folder / name, final)]
            temporary = [f"{self._entry(part)}/"]
            if replaced:
                self.check(old)
                self._remove_temporary(old)
                temporary.append(f"{self._entry(old)}/")
            self.list.add(*files, *temporary)
            if replaced:
                final.rename(old)
            part.rename(final)
            self._remove_temporary(old)
            self.list.discard(*sorted(set(before).difference(files)), *temporary)

    def take_whole(self) -> None:
        """Empty a folder that is still being built.

        Raises:
            UsageError: It holds files of others.
            OutputError: A file cannot be removed.
        """
        with writing(self.folder):
            found = [path for path in self.folder.iterdir() if path != self.list.path]
            if WHOLE not in self.list.entries():
                if found:
                    raise foreign(self.folder)
                self.list.add(WHOLE)
            for path in found:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def release_whole(self) -> None:
        """Say that the folder is built: only listed files in it are vlmgym's from now on."""
        self.list.discard(WHOLE)
        if not self.list.entries():
            self.list.path.unlink()

    def _make_folder(self, adopt: bool) -> bool:
        """Make the folder; whether it was not there."""
        made = not self._exists()
        if made:
            self.folder.mkdir(parents=True)
        elif self.list.id is None:
            self._refuse_foreign(adopt)
        return made

    def _exists(self) -> bool:
        try:
            mode = self.folder.stat().st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(mode):
            raise UsageError(f"{self.folder} is a file: name a folder")
        return True

    def _refuse_foreign(self, adopt: bool = False) -> None:
        names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name != self.list.path.name)
        if names and not adopt:
            some = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
            raise UsageError(
                f"{self.folder} holds files that vlmgym did not write ({some}): name a new or an empty folder (a run "
                f"that was copied needs its {MARKER}, too)"
            )

    def _entry(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _parents(self, path: Path) -> list[Path]:
        """The folders between this one and a path, from above."""
        return [self.folder / parent for parent in reversed(path.relative_to(self.folder).parents[:-1])]

    def _is_file(self, path: Path) -> bool:
        """Whether a file is there, no link and not behind a link."""
        return stat.S_ISREG(mode_of(path)) and not any(parent.is_symlink() for parent in self._parents(path))

    def _remove_temporary(self, folder: Path) -> None:
        if stat.S_ISDIR(mode_of(folder)) and not any(parent.is_symlink() for parent in self._parents(folder)):
            shutil.rmtree(folder)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which gets its name when everything is there.

    Args:
        folder: The name; nothing is there yet, or an empty folder.

    Raises:
        UsageError: Something is there.
        OutputError: It cannot be written, or another process is writing it.
    """
    folder = folder.absolute()
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        mode = mode_of(folder)
        taken = mode and not (stat.S_ISDIR(mode) and not any(folder.iterdir()))
    if taken:
        raise UsageError(f"{folder} is there already: choose another --output-dir")
    place = folder.with_name(f".{folder.name}.part")
    part = OutputFolder(place)
    try:
        with part.reserved():
            part.take_whole()  # also what a process that was killed has left
            try:
                yield place
                with writing(folder):
                    place.rename(folder)
            except BaseException:
                part.take_whole()
                part.remove(place)
                raise
            OutputFolder(folder).release_whole()
    finally:
        with suppress(OSError):
            place.rmdir()


def foreign(path: Path) -> UsageError:
    """The error about something that vlmgym did not write where it would."""
    return UsageError(f"{path} is there, and vlmgym did not write it: move it away, or name another folder")


def mode_of(path: Path, missing: int = 0) -> int:
    """The mode of what is at a path, be it a link."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return missing


def _is_below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents
