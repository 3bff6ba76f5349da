"""Reading a saved run: where the records of its episodes are, and each of them when it is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.records.episode import EpisodeRecord
from vlmgym.records.files import writing
from vlmgym.records.run import RunRecord, RunSummary
from vlmgym.records.run_folder import RunFolder, saved_folder

RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """Where the record of an episode is, and what one asks before reading all of it.

    Attributes:
        file: The file of lines.
        line: Number of the line, from 1.
        offset: Where the line begins, in bytes.
        length: Its bytes.
        game: Id of the game.
        seed: Seed of the episode.
        index: Place among the run's episodes of this game, from 0.
        score: Its score, None if it is not a result.
    """

    file: Path
    line: int
    offset: int
    length: int
    game: str
    seed: int
    index: int
    score: float | None

    def read(self) -> EpisodeRecord:
        """The whole record.

        Raises:
            UsageError: It cannot be read.
        """
        return _validated(EpisodeRecord, self.text(), self.place)

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"line {self.line} of {self.file}"

    @contextmanager
    def named(self) -> Iterator[None]:
        """Say of what is wrong with the record where it is.

        Raises:
            UsageError: As was raised, with the place in front.
        """
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self.place}, {error}") from None

    def text(self) -> bytes:
        """The line as it was written.

        Raises:
            UsageError: It cannot be read.
        """
        try:
            with self.file.open("rb") as file:
                file.seek(self.offset)
                return file.read(self.length)
        except OSError as error:
            raise UsageError(f"cannot read {self.file}: {error.strerror}") from None


@dataclass(frozen=True)
class StoredRun:
    """A run whose records stay in their file: it may be larger than memory.

    Attributes:
        folder: Where.
        asked: What was asked for.
        episodes: The latest record of each episode, in the order of the games and seeds.
        torn: Whether the last line of `episodes.jsonl` was not whole; it is not among the episodes.
    """

    folder: RunFolder
    asked: RunRecord
    episodes: tuple[StoredEpisode, ...]
    torn: bool

    def read(self) -> Iterator[EpisodeRecord]:
        """The records, one after another.

        Raises:
            UsageError: One cannot be read.
        """
        return (episode.read() for episode in self.episodes)

    def videos(self) -> dict[tuple[str, int], Path]:
        """Videos of its episodes, by game id and seed."""
        paths = {(one.game, one.seed): self.folder.video(game_name(one.game), one.index) for one in self.episodes}
        return {key: path for key, path in paths.items() if path.exists()}

    def last_summary(self) -> RunSummary:
        """What `summary.json` says; a run that was killed before it had one was interrupted."""
        return self.folder.read_summary() or RunSummary(
            games={}, stopped="the run was interrupted", seconds=0.0, turns_per_second=0.0
        )


@dataclass(frozen=True)
class Run:
    """A run with all its records in memory.

    Attributes:
        folder: Where.
        asked: What was asked for.
        episodes: The latest record of each episode, in the order of the games and seeds.
        torn: Whether the last line of `episodes.jsonl` was not whole; it is not among the episodes.
    """

    folder: RunFolder
    asked: RunRecord
    episodes: tuple[EpisodeRecord, ...]
    torn: bool


def read_run(folder: Path | RunFolder) -> Run:
    """Read a run, whatever ended it; `open_run` is for runs that are larger than memory.

    Raises:
        UsageError: The folder holds no run, or one that this version does not read.
    """
    run = open_run(folder)
    return Run(run.folder, run.asked, tuple(run.read()), run.torn)


def open_run(folder: Path | RunFolder) -> StoredRun:
    """Find the records of a run, whatever ended it.

    Raises:
        UsageError: The folder holds no run, or one that this version does not read.
    """
    place = folder if isinstance(folder, RunFolder) else saved_folder(folder)
    asked = read_asked(place)
    order = {game: i for i, game in enumerate(asked.game_ids)}
    found, torn = find_episodes(place.episodes)
    for step in sorted(place.folder.glob(place.steps)):
        found += find_episodes(step)[0]
    # A resumed run appends another record for episodes that had no result: the last one counts.
    latest = {(episode.game, episode.seed): episode for episode in found}.values()
    ordered = sorted(latest, key=lambda episode: (order.get(episode.game, len(order)), episode.seed))
    return StoredRun(place, asked, tuple(ordered), torn)


def find_episodes(path: Path) -> tuple[list[StoredEpisode], bool]:
    """Find the records of a file, and whether its last line was torn (by a kill in the middle of writing it).

    Raises:
        UsageError: A line before the last is not the record of an episode, or the file cannot be read.
    """
    if not path.exists():
        return [], False
    episodes: list[StoredEpisode] = []
    end = 0
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for number, (start, line) in enumerate(_whole_lines(file, size), 1):
                end = start + len(line)
                if text := line.rstrip(b"\r\n"):
                    head = _validated(_Head, text, f"line {number} of {path}")
                    place = (path, number, start, len(text))
                    episodes.append(StoredEpisode(*place, head.game.id, head.seed, head.index, head.score))
        return episodes, end < size
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def drop_torn_line(path: Path) -> None:
    """Truncate a file of JSON lines after its last whole line.

    Raises:
        OutputError: The file cannot be read or written.
    """
    with writing(path), path.open("rb+") as file:
        size = os.fstat(file.fileno()).st_size
        file.truncate(max((start + len(line) for start, line in _whole_lines(file, size)), default=0))


def game_name(game_id: str) -> str:
    """The name of a game by its id, which need not be installed."""
    return game_id.rpartition("-v")[0]


class _GameId(BaseModel):
    id: str


class _Head(BaseModel):
    """What is read of every record."""

    model_config = ConfigDict(extra="ignore")

    game: _GameId
    seed: int
    index: int
    score: float | None


def _whole_lines(file: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and text of each line up to a torn one; lines may end in LF, CRLF or CR."""
    start = 0
    for part in file:
        for line in part.splitlines(keepends=True):
            text = line.rstrip(b"\r\n")
            if start + len(line) == size and _is_torn(text, ended=text != line):
                return
            yield start, line
            start += len(line)


def _is_torn(text: bytes, *, ended: bool) -> bool:
    """Whether writing the last line was interrupted.

    Such a line has no line end, or, after a power failure, its length but zero bytes instead of its text. Any other
    line that is not JSON was edited by somebody, and is an error.
    """
    if ended and b"\0" not in text:
        return False
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def read_asked(place: RunFolder) -> RunRecord:
    """What a run was asked for.

    Raises:
        UsageError: The folder holds no run, or one that this version does not read.
    """
    try:
        text = place.run.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        raise UsageError(f"{place.folder} holds no run: cannot read {place.run}: {reason}") from None
    return _validated(RunRecord, text, str(place.run))


def _validated(model: type[RecordT], text: str | bytes, where: str) -> RecordT:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"{where} cannot be read: {describe_validation_error(error)}") from None
