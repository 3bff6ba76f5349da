"""Output folders, each with a list of the files that vlmgym wrote to it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.records.file_list import FileList
from vlmgym.records.files import OutputError, replace_file, writing

MARKER = ".vlmgym.jsonl"
"""Name of the list in the folder."""
BUILDING = ".vlmgym.building"
"""Name of the lock in a folder that is being built. Everything in such a folder was written by vlmgym."""


class OutputFolder:
    """A folder with a list of the files that vlmgym wrote to it.

    Files are listed before they are written, so that none is unlisted if the process is killed. Only listed files are
    ever replaced, moved or removed, and symbolic links are not followed.

    Methods raise `UsageError` if something that vlmgym did not write is in the way, and `OutputError` if a file cannot
    be read, written or removed.
    """

    def __init__(self, folder: Path, marker: Path | None = None) -> None:
        """Set the folder, and the path of its list if stored elsewhere. Reads and writes nothing."""
        self.folder = folder.absolute()  # a policy may change the working directory
        self.list = FileList(marker or self.folder / MARKER)

    @contextmanager
    def reserved(self, *, adopt: bool = False) -> Iterator[None]:
        """Create the folder if needed, and lock it against other processes.

        `adopt` accepts a folder that has files but no list.
        """
        with writing(self.folder):
            made = not self._exists()
            if made:
                self.folder.mkdir(parents=True)
            elif not adopt:
                self.check_own()
        with _locked(self.list.path):
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

    def check_own(self) -> None:
        """Raise `UsageError` if the folder has files, but no list of those that vlmgym wrote."""
        with writing(self.folder):
            if not self._exists() or self.list.id is not None:
                return
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name != self.list.path.name)
        if names:
            some = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
            raise UsageError(
                f"{self.folder} contains files that vlmgym did not write ({some}): choose a new or empty folder "
                f"(copied runs need their {MARKER})"
            )

    def check(self, *paths: Path) -> None:
        """Check that writing to these paths would replace only listed files."""
        listed = self.list.entries()
        for path in paths:
            with writing(path):
                for parent in self._parents(path):
                    if not stat.S_ISDIR(mode_of(parent, stat.S_IFDIR)):
                        raise foreign(parent)
                entry, mode = self._entry(path), mode_of(path)
            ours = (stat.S_ISREG(mode) and entry in listed) or (stat.S_ISDIR(mode) and f"{entry}/" in listed)
            if mode and not ours:
                raise foreign(path)

    def check_all_of(self, folder: Path) -> None:
        """Check that a folder, if it exists, contains only listed files."""
        if os.path.lexists(folder) and not self.owns_all_of(folder):
            raise foreign(folder)

    def claim(self, *paths: Path) -> None:
        """Add files to the list before they are written."""
        self.check(*paths)
        listed = self.list.entries()
        if new := [entry for entry in map(self._entry, paths) if entry not in listed]:
            self.list.add(*new)

    def write(self, path: Path, data: bytes | Iterable[bytes]) -> None:
        """Add a file to the list, and write it atomically; parent folders are created."""
        self.claim(path)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)

    def owned(self) -> list[Path]:
        """Return the listed files that exist."""
        with writing(self.folder):
            return [path for entry in self.list.entries() if self._is_file(path := self.folder / entry)]

    def owns_all_of(self, folder: Path) -> bool:
        """Return whether a folder exists, and every file in it is listed."""
        listed = {self.list.path, *self.owned()}
        with writing(folder):
            return stat.S_ISDIR(mode_of(folder)) and all(
                path in listed or (path.is_dir() and not path.is_symlink()) for path in folder.rglob("*")
            )

    def is_empty(self) -> bool:
        """Return whether the folder exists, and contains nothing except the list."""
        with writing(self.folder):
            return self.folder.is_dir() and {*self.folder.iterdir()} <= {self.list.path}

    def remove(self, *paths: Path) -> None:
        """Remove the listed files at and below these paths, and folders that become empty."""
        entries = [name for name in self.list.entries() if any(_is_below(self.folder / name, path) for path in paths)]
        emptied = set[Path]()
        for entry in entries:
            path = self.folder / entry
            with writing(path):
                if entry.endswith("/"):
                    self._remove_folder(path)
                elif self._is_file(path):
                    path.unlink()
            emptied.update(self._parents(path))
        if entries:
            self.list.discard(*entries)
        for folder in sorted(emptied, reverse=True):
            with suppress(OSError):  # it contains files that are not ours
                folder.rmdir()

    def move(self, other: OutputFolder) -> None:
        """Move all listed files and the id to another folder, and give this folder a new id.

        If the process is killed midway, both folders have the same id, and calling `move` again completes the move.
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
        """Yield a temporary folder, which replaces `final` at the end of the block."""
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
        """Make an empty temporary folder, which the next run removes if this process is killed."""
        self.check(part)
        with writing(part):
            self._remove_folder(part)
            self.list.add(f"{self._entry(part)}/")
            part.mkdir(parents=True)

    def put(self, part: Path, final: Path) -> None:
        """Rename a temporary folder to `final`, and list its files.

        An existing `final` is replaced if all its files are listed; otherwise, `UsageError` is raised.
        """
        self.check_all_of(final)
        before = [name for name in self.list.entries() if _is_below(self.folder / name, final)]
        replaced = final.with_name(f".{final.name}.old.part")
        temporary = [f"{self._entry(path)}/" for path in (part, replaced)]
        with writing(final):
            files = [self._entry(final / path.relative_to(part)) for path in part.rglob("*") if path.is_file()]
            self.list.add(*files, temporary[1])
            self._remove_folder(replaced)
            if final.exists():
                final.rename(replaced)  # removal takes time, during which this process may be killed
            part.rename(final)
            self._remove_folder(replaced)
        self.list.discard(*sorted(set(before).difference(files)), *temporary)

    def _exists(self) -> bool:
        try:
            mode = self.folder.stat().st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(mode):
            raise UsageError(f"{self.folder} is a file: choose a folder")
        return True

    def _entry(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _parents(self, path: Path) -> list[Path]:
        """Return the folders between this folder and a path, outermost first."""
        return [self.folder / parent for parent in reversed(path.relative_to(self.folder).parents[:-1])]

    def _is_file(self, path: Path) -> bool:
        """Return whether a path is a regular file: neither a link nor reached through one."""
        return stat.S_ISREG(mode_of(path)) and not any(parent.is_symlink() for parent in self._parents(path))

    def _remove_folder(self, folder: Path) -> None:
        """Remove a folder if it exists, unless it is a link or reached through one."""
        if stat.S_ISDIR(mode_of(folder)) and not any(parent.is_symlink() for parent in self._parents(folder)):
            shutil.rmtree(folder)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `folder` at the end of the block."""
    folder = folder.absolute()
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        mode = mode_of(folder)
        if mode and (not stat.S_ISDIR(mode) or any(folder.iterdir())):
            raise UsageError(f"{folder} already exists: choose another --output-dir")
    part = folder.with_name(f".{folder.name}.part")
    lock = part / BUILDING
    try:
        with writing(part):
            part.mkdir(exist_ok=True)
            if not lock.exists() and any(part.iterdir()):
                raise foreign(part)
        with _locked(lock):
            try:
                _clear(part, lock)  # leftovers of a killed process
                yield part
                with writing(folder):
                    part.rename(folder)
            except BaseException:
                _clear(part, lock)
                lock.unlink()
                raise
            (folder / BUILDING).unlink()
    finally:
        with suppress(OSError):
            part.rmdir()


def _clear(folder: Path, kept: Path) -> None:
    """Remove everything in a folder, except one file."""
    with writing(folder):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path != kept:
                path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file against other processes, creating it if needed."""
    with writing(path.parent):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        with writing(path.parent):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(lock), os.stat(path)):
                    raise FileNotFoundError
            except (BlockingIOError, FileNotFoundError):  # not found: the last holder of the lock has removed it
                raise OutputError(f"another run is writing to {path.parent}: choose another --output-dir") from None
        yield
    finally:
        os.close(lock)


def foreign(path: Path) -> UsageError:
    """Return the error for an existing path that vlmgym did not write."""
    return UsageError(f"{path} exists and was not written by vlmgym: move it away, or choose another folder")


def mode_of(path: Path, missing: int = 0) -> int:
    """Return the mode of a path, without following a link, or `missing` if nothing is there."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return missing


def _is_below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents
