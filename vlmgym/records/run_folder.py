"""The folder of a run: what is where, keeping other runs out, in what two runs differ."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from vlmgym.errors import UsageError
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import RunRecord, RunSummary

UNFINISHED = ".page.part"
"""In the folder beside a page: what is written of it before it gets its name."""
MARKER_BESIDE = ".vlmgym-beside.jsonl"
"""List of the files that an evaluation script's run has outside its folder."""


class RunFolder:
    """`run.json` (what was asked for), `episodes.jsonl` (a line an episode), `summary.json`, curves, videos, a page."""

    def __init__(self, folder: Path) -> None:
        """Name the files; nothing is touched yet."""
        self.output = OutputFolder(folder)
        self.folder = self.output.folder
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

    def owner(self, path: Path) -> OutputFolder:
        """The folder whose list names a file of the run."""
        return self.output

    def write(self, path: Path, data: bytes | Iterable[bytes]) -> None:
        """Write a file of the run.

        Raises:
            UsageError: It is there, and vlmgym did not write it.
            OutputError: It cannot be written.
        """
        self.owner(path).write(path, data)

    def check(self, asked: RunRecord, *, videos: bool, report: bool) -> None:
        """Refuse a run before it is played if a file of another origin is where the run would write.

        Raises:
            UsageError: The message names the file.
            OutputError: The folder cannot be read.
        """
        paths = [self.run, self.episodes, self.summary]
        for name in {game.rpartition("-v")[0] for game in asked.game_ids}:
            paths += [path for path in (self.record(name), self.curves(name)) if path is not None]
            paths += [self.video(name, index) for index in range(asked.episodes if videos else 0)]
        if report:
            paths += [self.report, self.folder / "report" / UNFINISHED]
        for owner in {self.owner(path) for path in paths}:
            owner.check(*(path for path in paths if self.owner(path) is owner))

    def make_way(self) -> None:
        """Let a new run have this folder.

        Raises:
            UsageError: It holds a run.
            OutputError: It cannot be looked into, or be written.
        """
        if {self.run, self.episodes} & set(self.output.owned()):
            raise UsageError(f"{self.folder} holds a run: --resume it, or choose another --output-dir")

    def clear_results(self) -> None:
        """Remove what another run left in the places of results.

        Raises:
            OutputError: A file cannot be removed.
        """
        curves = [path for path in self.output.owned() if path.match("curves_*.png") and path.parent == self.folder]
        self.output.remove(self.report, self.folder / "report", self.folder / "videos", *curves)

    def reserved(self, *, adopt: bool = False) -> AbstractContextManager[None]:
        """Keep other runs from writing the same files meanwhile.

        Args:
            adopt: Accept a folder without a list of files, which may then be added to.

        Raises:
            UsageError: The folder holds files and no list of them.
            OutputError: Another run is writing them, or the folder cannot be written.
        """
        return self.output.reserved(adopt=adopt)

    def begin(self, run: RunRecord) -> None:
        """Write what a run was asked for.

        Raises:
            UsageError: `run.json` is there, and vlmgym did not write it.
            OutputError: It cannot be written.
        """
        self.write(self.run, (run.model_dump_json(indent=1) + "\n").encode())

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
        self.output.remove(self.summary)

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
        self.beside = OutputFolder(beside, marker=self.folder / MARKER_BESIDE)
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

    def owner(self, path: Path) -> OutputFolder:
        """The folder of the run, or the one that the documented files lie in."""
        return self.output if path.is_relative_to(self.folder) else self.beside

    def make_way(self) -> None:
        """Keep the last run as `NAME.previous` if it was complete, in place of the one before, or else as `NAME.1`, ...

        Files that vlmgym did not write stay where they are; a `NAME.previous` that holds some is not replaced.

        Raises:
            OutputError: A folder or file cannot be written.
        """
        if self.output.owned():
            self.output.remove(self.report, self.folder / "report")  # it links videos that the new run replaces
            self.output.move(self._kept())
        else:
            self.output.list.rename()  # the id may be that of files which were moved before a kill

    def _kept(self) -> OutputFolder:
        """Where the last run goes; if a kill interrupted the move, where its other files are."""
        previous = OutputFolder(self.folder.with_name(f"{self.name}.previous"))
        numbered = (OutputFolder(self.folder.with_name(f"{self.name}.{n}")) for n in count(1))
        taken = []
        for free in numbered:
            if not os.path.lexists(free.folder) or free.is_empty():
                break
            taken.append(free)
        for kept in (previous, *taken):
            if kept.list.id == self.output.list.id:
                return kept
        if not self.complete():
            return free
        if previous.list.id is not None and previous.owns_all_of(previous.folder):
            previous.remove(previous.folder)
        elif os.path.lexists(previous.folder):
            return free
        return previous

    def clear_results(self) -> None:
        """Remove the record, curves and videos of the last run, when those of this one are there to be written."""
        super().clear_results()
        self.beside.remove(self.beside.folder)
        self.beside.list.rename(self.output.list.id)


def saved_folder(folder: Path) -> RunFolder:
    """Recognize the folder of a saved run: that of an evaluation script has videos outside.

    The two lists of a script's folder have the same id once the files outside are of this run, too.
    """
    found = RunFolder(folder)
    if found.folder.parent.name != "logs" or not (found.folder / MARKER_BESIDE).exists():
        return found
    script = ScriptFolder(found.folder.parent.parent, found.folder.name)
    return script if script.beside.list.id == script.output.list.id else found


def differences(asked: RunRecord, now: RunRecord) -> Sequence[str]:
    """In what two runs differ that decides about their episodes, as `max_turns was 100 and is 50`.

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
