"""The folder of a run: what is where, keeping other runs out, in what two runs differ."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from vlmgym.errors import UsageError
from vlmgym.evaluation.files import OutputError, replace_file, writing
from vlmgym.evaluation.record import RunRecord, RunSummary


class RunFolder:
    """`run.json` (what was asked for), `episodes.jsonl` (a line an episode), `summary.json`, curves, videos, a page."""

    def __init__(self, folder: Path) -> None:
        """Name the files; nothing is touched yet."""
        self.folder = folder.absolute()  # a policy may change the current folder
        self.run = self.folder / "run.json"
        self.episodes = self.folder / "episodes.jsonl"
        self.steps = "step_*.jsonl"
        """Beside it, or instead of it: the episodes of each step of a training run."""
        self.summary = self.folder / "summary.json"
        self.report = self.folder / "report.html"

    def curves(self, game: str) -> Path:
        """The curves of a game, by its name."""
        return self.folder / f"curves_{game}.png"

    def video(self, game: str, index: int) -> Path:
        """The video of an episode by its game and its place in the order of seeds."""
        return self.folder / "videos" / f"{game}_{index}.mp4"

    def record(self, game: str) -> Path | None:
        """A document that holds all episodes of a game in the order of their seeds, where one is wanted."""
        return None

    def make_way(self) -> None:
        """Let a new run have this folder.

        Raises:
            UsageError: It holds a run.
            OutputError: It cannot be looked into, or be written.
        """
        with writing(self.folder):
            held = self.run.exists() or self.episodes.exists()
        if held:
            raise UsageError(f"{self.folder} holds a run: --resume it, or choose another --out")

    def clear_results(self) -> None:
        """Remove what another run left in the places of results.

        Raises:
            OutputError: A file cannot be removed.
        """
        for path in (self.report, *self.folder.glob("curves_*.png"), *self.folder.glob("videos/*_*.mp4")):
            with writing(path):
                path.unlink(missing_ok=True)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Keep other runs from writing the same files meanwhile.

        Raises:
            OutputError: Another run is writing them, or the folder cannot be written.
        """
        with writing(self.folder):
            path = self._lock()
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not (path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())):
                    raise BlockingIOError  # it was unlinked by its last holder between opening and locking
            except BlockingIOError:
                raise OutputError(f"another run is writing {self.folder}: choose another --out") from None
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def _lock(self) -> Path:
        """The file whose holder has the folder: beside it, by its true name, or inside if one cannot write there."""
        folder = Path(os.path.realpath(self.folder))  # Path.resolve raises something else at a loop of links
        if folder.is_dir() and not os.access(folder.parent, os.W_OK):
            return folder / ".lock"
        return folder.parent / f".{folder.name}.lock"

    def begin(self, run: RunRecord) -> None:
        """Make the folder of a new run.

        Raises:
            OutputError: It cannot be written.
        """
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.run, (run.model_dump_json(indent=1) + "\n").encode())

    def complete(self) -> bool:
        """Whether every episode of the run has a result."""
        summary = self.read_summary()
        return (
            summary is not None
            and summary.stopped is None
            and not any(game.unfinished for game in summary.games.values())
        )

    def reopen(self) -> None:
        """Take back the summary of a run that goes on, so that nothing says it is over.

        Raises:
            OutputError: It cannot be removed.
        """
        with writing(self.summary):
            self.summary.unlink(missing_ok=True)

    def read_summary(self) -> RunSummary | None:
        """What `summary.json` says, None where it is missing or cannot be read: it follows from the records."""
        try:
            return RunSummary.model_validate_json(self.summary.read_bytes())
        except (OSError, ValueError):
            return None


class ScriptFolder(RunFolder):
    """The files of an evaluation script.

    Those that are documented lie beside it: `logs/NAME.json`, `logs/NAME.png`, `videos/NAME_0.mp4`, ...; the rest in
    `logs/NAME`.
    """

    def __init__(self, beside: Path, name: str) -> None:
        """Name the files.

        Args:
            beside: The folder that holds `logs` and `videos`.
            name: First part of all file names, for instance `test_2048`.
        """
        super().__init__(beside / "logs" / name)
        self.name = name
        self.logs, self.videos = self.folder.parent, self.folder.parent.parent / "videos"

    def curves(self, game: str) -> Path:
        """As documented."""
        return self.logs / f"{self.name}.png"

    def video(self, game: str, index: int) -> Path:
        """As documented."""
        return self.videos / f"{self.name}_{index}.mp4"

    def record(self, game: str) -> Path | None:
        """As documented."""
        return self.logs / f"{self.name}.json"

    def make_way(self) -> None:
        """Keep the last run as `NAME.previous` if it was complete, in place of the one before, or else as `NAME.1`, ...

        Raises:
            OutputError: A folder or file cannot be written.
        """
        if self.folder.exists():
            with writing(self.folder):
                if self.complete():
                    kept = self.folder.with_name(f"{self.name}.previous")
                    shutil.rmtree(kept, ignore_errors=True)
                else:
                    free = (self.folder.with_name(f"{self.name}.{n}") for n in count(1))
                    kept = next(path for path in free if not path.exists())
                self.folder.rename(kept)

    def clear_results(self) -> None:
        """Remove the record, curves and videos of the last run, when those of this one are there to be written."""
        super().clear_results()
        videos = [path for path in self.videos.glob(f"{self.name}_*.mp4") if self._is_number(path)]
        for path in (self.logs / f"{self.name}.json", self.logs / f"{self.name}.png", *videos):
            with writing(path):
                path.unlink(missing_ok=True)

    def _is_number(self, video: Path) -> bool:
        return video.stem[len(self.name) + 1 :].isdecimal()


def differences(asked: RunRecord, now: RunRecord) -> Sequence[str]:
    """In what two runs differ that decides about their episodes, as `turns was 100 and is 50`.

    More episodes than before are no difference.
    """
    if (asked.curriculum is None) != (now.curriculum is None):
        return ["it had no curriculum" if asked.curriculum is None else "it had a curriculum"]
    if asked.curriculum is not None and now.curriculum is not None:
        found = [*map(str, changes(asked.curriculum.file, now.curriculum.file, "curriculum"))]
        if found:  # the games follow from it
            return found
    fields = ("games", "policy", "reward", "history", "history_images", "max_turns", "seed")
    before, after = ({name: record.model_dump(mode="json")[name] for name in fields} for record in (asked, now))
    for options in (before, after):
        options["turns"] = options.pop("max_turns")  # as the option is called
    found = [*map(str, changes(before, after))]
    if now.episodes < asked.episodes:
        found.append(f"episodes was {asked.episodes} and is {now.episodes}")
    return found


class Change(NamedTuple):
    """A value that differs between two values of JSON; in words, `reward.illegal was None and is -1.0`.

    Attributes:
        where: Names on the way to it, apart by dots.
        before: What it was.
        after: What it is.
    """

    where: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.where} was {self.before!r} and is {self.after!r}"


def changes(before: object, after: object, where: str = "") -> Iterator[Change]:
    """In what two values of JSON differ; what one of them lacks is None there."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from changes(before.get(name), after.get(name), f"{where}.{name}" if where else name)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (a, b) in enumerate(zip(before, after)):
            yield from changes(a, b, f"{where}.{i}")
    elif before != after:
        yield Change(where, before, after)
