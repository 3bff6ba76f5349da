"""Where an evaluation writes, and writing that survives a crash: append a line at a time, replace a file as a whole."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType

from vlmgym.errors import VlmgymError
from vlmgym.evaluation.record import EpisodeRecord


class OutputError(VlmgymError):
    """A file cannot be written."""


class Output:
    """The files of one evaluation under a folder: `logs/NAME.json`, `logs/NAME.png`, `videos/NAME_0.mp4`, ..."""

    def __init__(self, folder: Path, name: str) -> None:
        """Name the files; nothing is touched yet.

        Args:
            folder: The folder that holds `logs` and `videos`.
            name: First part of all file names, for instance `test_2048`.
        """
        folder = folder.absolute()  # a policy may change the current folder
        self.logs, self.videos, self.name = folder / "logs", folder / "videos", name
        self.episodes = self.logs / f"{name}.jsonl"
        """Episodes as they end; it goes when `run`, which holds the same, is written."""
        self.run = self.logs / f"{name}.json"
        self.curves = self.logs / f"{name}.png"

    def video(self, index: int) -> Path:
        """The video of an episode by its place in the order of seeds."""
        return self.videos / f"{self.name}_{index}.mp4"

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Keep other runs from writing the same files meanwhile.

        Raises:
            OutputError: Another run is writing them, or the folder cannot be written.
        """
        path = self.logs / f".{self.name}.lock"
        with writing(self.logs):
            self.logs.mkdir(parents=True, exist_ok=True)
        with writing(path):
            lock = path.open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(f"another run is writing {self.run}: choose another --out") from None
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def prepare(self, videos: bool) -> None:
        """Make the folders, and remove what an earlier finished run of this name left.

        The episodes of an earlier run that was interrupted are kept, under the next free name `NAME.1.jsonl`, ...

        Raises:
            OutputError: A folder or file cannot be written.
        """
        for folder in (self.logs, self.videos) if videos else (self.logs,):
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    pass  # only to see now, not when everything is played, whether files can be made here
        if self.episodes.exists():
            kept = (self.logs / f"{self.name}.{n}.jsonl" for n in count(1))
            with writing(self.episodes):
                self.episodes.rename(next(path for path in kept if not path.exists()))
        old_videos = [path for path in self.videos.glob(f"{self.name}_*.mp4") if _is_number(path, self.name)]
        for path in (self.run, self.curves, *old_videos):
            with writing(path):
                path.unlink(missing_ok=True)


class EpisodeLog:
    """One JSON line per finished episode, on the disk before the next begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0

    def __enter__(self) -> EpisodeLog:
        with writing(self.path):
            self._file = self.path.open("w", encoding="utf-8")
        return self

    def write(self, episode: EpisodeRecord) -> None:
        """Append an episode.

        Raises:
            OutputError: The disk is full, or the like.
        """
        with writing(self.path):
            self._file.write(episode.model_dump_json() + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self.written += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that its name always stands for a whole one.

    Raises:
        OutputError: It cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        with writing(path):
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's errors into one sentence that names the file."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _is_number(path: Path, name: str) -> bool:
    return path.stem[len(name) + 1 :].isdecimal()
