"""The episodes of a saved run, read one at a time: a run may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from vlmgym.errors import UsageError
from vlmgym.evaluation.record import EpisodeRecord, RunRecord, RunSummary
from vlmgym.evaluation.run_folder import RunFolder, is_whole, read_asked, validated


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
        score: Its score, None if it is not a result.
    """

    file: Path
    line: int
    offset: int
    length: int
    game: str
    seed: int
    score: float | None

    def read(self) -> EpisodeRecord:
        """The whole record.

        Raises:
            UsageError: It cannot be read.
        """
        try:
            with self.file.open("rb") as file:
                file.seek(self.offset)
                text = file.read(self.length)
        except OSError as error:
            raise UsageError(f"cannot read {self.file}: {error.strerror}") from None
        return validated(EpisodeRecord, text, f"line {self.line} of {self.file}")


@dataclass(frozen=True)
class StoredRun:
    """A run whose records stay in their file; `read_run` reads all of them.

    Attributes:
        folder: Where.
        asked: What was asked for.
        episodes: The latest record of each episode, in the order of the games and seeds.
    """

    folder: RunFolder
    asked: RunRecord
    episodes: tuple[StoredEpisode, ...]

    def last_summary(self) -> RunSummary:
        """What `summary.json` says; a run that was killed before it had one was interrupted.

        Raises:
            UsageError: It cannot be read.
        """
        path = self.folder.summary
        if path.exists():
            return validated(RunSummary, path.read_bytes(), str(path))
        return RunSummary(games={}, stopped="the run was interrupted", seconds=0.0, turns_per_second=0.0)


def find_run(folder: Path) -> StoredRun:
    """Find the records of a run, whatever ended it; a torn last line is left out.

    Raises:
        UsageError: The folder holds no run, or one that this version does not read.
    """
    place = RunFolder(folder)
    asked = read_asked(place)
    order = {game.id: i for i, game in enumerate(asked.games)}
    latest = {(episode.game, episode.seed): episode for episode in _find_lines(place.episodes)}
    found = sorted(latest.values(), key=lambda episode: (order.get(episode.game, len(order)), episode.seed))
    return StoredRun(place, asked, tuple(found))


class _GameId(BaseModel):
    id: str


class _Head(BaseModel):
    """What is read of every record."""

    model_config = ConfigDict(extra="ignore")

    game: _GameId
    seed: int
    score: float | None


def _find_lines(path: Path) -> Iterator[StoredEpisode]:
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            offset, size = 0, path.stat().st_size
            for number, line in enumerate(file, 1):
                text = line.removesuffix(b"\n")
                if text == line or (offset + len(line) == size and not is_whole(text)):
                    return  # torn
                head = validated(_Head, text, f"line {number} of {path}")
                yield StoredEpisode(path, number, offset, len(text), head.game.id, head.seed, head.score)
                offset += len(line)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
