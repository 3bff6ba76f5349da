"""Read a saved run: locate the records of its episodes, and load each one on demand.

Anything unreadable raises a `UsageError` that names the file and, for records, the line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.runs.files import writing
from vlmgym.runs.record import EpisodeRecord, RunRecord, RunSummary, allow_data, allowed_data
from vlmgym.runs.run import RunFolder

RecordT = TypeVar("RecordT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """Location of an episode's record (line, offset and length in bytes), and fields needed before loading it."""

    file: Path
    line: int
    offset: int
    length: int
    game: str
    seed: int
    index: int
    score: float | None
    data: tuple[str, ...] = ()
    """Data that may be opened, also by the worker process that loads the record."""

    def read(self) -> EpisodeRecord:
        """Load the record."""
        allow_data(*self.data)
        return self.read_as(EpisodeRecord)

    def read_as(self, model: type[RecordT], text: bytes | None = None) -> RecordT:
        """Load only the fields of a model, from the record's `text` if it has been read."""
        return _validated(model, next(read_texts([self])) if text is None else text, self.location)

    @property
    def key(self) -> tuple[str, int]:
        """Game id and seed, unique within a run."""
        return self.game, self.seed

    @property
    def location(self) -> str:
        """Location for messages."""
        return f"line {self.line} of {self.file}"

    @contextmanager
    def named(self) -> Iterator[None]:
        """Prefix errors about the record with its location."""
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self.location}, {error}") from None


def read_texts(episodes: Iterable[StoredEpisode]) -> Iterator[bytes]:
    """Read the JSON of records; files are opened once."""
    with ExitStack() as stack:
        files: dict[Path, BinaryIO] = {}
        for episode in episodes:
            try:
                if episode.file not in files:
                    files[episode.file] = stack.enter_context(episode.file.open("rb"))
                files[episode.file].seek(episode.offset)
                yield files[episode.file].read(episode.length)
            except OSError as error:
                raise UsageError(f"cannot read {episode.file}: {error.strerror}") from None


EpisodeT = TypeVar("EpisodeT", StoredEpisode, EpisodeRecord)


@dataclass(frozen=True)
class Run(Generic[EpisodeT]):
    """A saved run.

    Attributes:
        folder: Folder of the run.
        config: Configuration of the run.
        episodes: Latest record of each episode, or the record's location, ordered by game and seed.
        torn: True if the last line of `episodes.jsonl` is incomplete; such a line is ignored.
        replaced: Locations of earlier records of the same episodes; empty if the records are loaded (`read_run`).
    """

    folder: RunFolder
    config: RunRecord
    episodes: tuple[EpisodeT, ...]
    torn: bool
    replaced: tuple[EpisodeT, ...] = ()

    def read(self: StoredRun) -> Iterator[EpisodeRecord]:
        """Load the records one by one."""
        return (episode.read() for episode in self.episodes)

    @cached_property
    def scores(self) -> dict[tuple[str, int], float]:
        """Score of each episode with a result, by game id and seed."""
        return {episode.key: episode.score for episode in self.episodes if episode.score is not None}

    def videos(self: StoredRun) -> dict[tuple[str, int], Path]:
        """Return the existing videos, by game id and seed."""
        existing = {path.name for path in self.folder.videos.glob("*.mp4")}
        if not existing:  # naming the videos of 20,000 episodes takes 0.3 s
            return {}
        paths = {episode.key: self.folder.video(game_name(episode.game), episode.index) for episode in self.episodes}
        return {key: path for key, path in paths.items() if path.name in existing}

    def last_summary(self) -> RunSummary:
        """Read `summary.json`; if it is missing or unreadable, return a summary of an interrupted run."""
        return self.folder.read_summary() or RunSummary(
            games={}, stop_reason="the run was interrupted", seconds=0.0, turns_per_second=0.0
        )


StoredRun: TypeAlias = Run[StoredEpisode]
"""A run whose records stay on disk, so it may be larger than memory."""


def read_run(folder: Path | RunFolder) -> Run[EpisodeRecord]:
    """Load a run, finished or not, with the latest record of each episode; `open_run` reads runs larger than memory."""
    run = open_run(folder)
    return Run(run.folder, run.config, tuple(run.read()), run.torn)


def open_run(folder: Path | RunFolder, data: Iterable[str] = ()) -> StoredRun:
    """Open a run, finished or not; `data` of its games may be opened, and all other data that it names may not."""
    allow_data(*data)
    run_folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    run_folder.check_links()
    config = run_folder.read_config()
    order = {game: i for i, game in enumerate(config.game_ids)}
    stored, torn = find_episodes(run_folder.episodes)
    for step in sorted(run_folder.folder.glob(run_folder.steps)):
        stored += find_episodes(step)[0]
    # A resumed run appends new records for episodes that had no result: an episode's last record counts.
    latest = {episode.key: episode for episode in stored}
    episodes = sorted(latest.values(), key=lambda episode: (order.get(episode.game, len(order)), episode.seed))
    replaced = tuple(episode for episode in stored if latest[episode.key] is not episode)
    return StoredRun(run_folder, config, tuple(episodes), torn, replaced)


def find_episodes(path: Path) -> tuple[list[StoredEpisode], bool]:
    """Locate the records of a file, and report whether its last line is torn by an interrupted write."""
    if not path.exists():
        return [], False
    try:
        episodes: list[StoredEpisode] = []
        data, end = allowed_data(), 0
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            for number, line in enumerate(_whole_lines(file, size), 1):
                if text := line.rstrip(b"\r\n"):
                    head = _validated(_Head, text, f"line {number} of {path}")
                    fields = (head.game.id, head.seed, head.index, head.score, data)
                    episodes.append(StoredEpisode(path, number, end, len(text), *fields))
                end += len(line)
        return episodes, end < size
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def drop_torn_line(path: Path) -> None:
    """Truncate a JSON-lines file after its last complete line."""
    with writing(path), path.open("rb+") as file:
        size = os.fstat(file.fileno()).st_size
        file.truncate(sum(map(len, _whole_lines(file, size))))


def game_name(game_id: str) -> str:
    """Return the name in a game id; the game need not be installed."""
    return game_id.rpartition("-v")[0]


class _GameId(BaseModel):
    id: str


class _Head(BaseModel):
    """The fields of a record that are read when a run is opened."""

    model_config = ConfigDict(extra="ignore")

    game: _GameId
    seed: int
    index: int
    score: float | None


def _whole_lines(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the lines of the first `size` bytes, except a last line of which writing was interrupted.

    Such a line is not JSON, and has no line end or, after a power failure, contains zero bytes. Any other line that is
    not JSON has been edited, which is an error.
    """
    end = 0
    for line in file:
        end += len(line)
        if end == size and (b"\0" in line or not line.endswith(b"\n")) and not _is_json(line):
            return
        yield line


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _validated(model: type[RecordT], text: str | bytes, location: str) -> RecordT:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"{location} cannot be read: {describe_validation_error(error)}") from None
