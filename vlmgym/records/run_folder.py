"""The folder of a run: paths of its files, and archiving of a script's previous run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.records.files import json_bytes
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import RunRecord, RunSummary

UNFINISHED = ".page.part"
"""Name of the temporary folder of a page that is being written."""
SCRIPT_MARKER = ".vlmgym-beside.jsonl"
"""Name of the list of a script's files outside its run folder."""


class RunFolder:
    """Files of a run: `run.json`, `episodes.jsonl` (a line per episode), `summary.json`, curves, videos, a report page.

    Methods raise the errors of `OutputFolder`.
    """

    def __init__(self, folder: Path) -> None:
        self.output = OutputFolder(folder)
        self.folder = self.output.folder
        self.run = self.folder / "run.json"
        self.episodes = self.folder / "episodes.jsonl"
        self.steps = "step_*.jsonl"
        """Pattern of the files with the episodes of each training step, in addition to or instead of `episodes`."""
        self.summary = self.folder / "summary.json"
        self.report = self.folder / "report.html"

    def curves(self, game: str) -> Path:
        """Return the path of the curves of a game; `game` is its name."""
        return self.folder / f"curves_{_file_name(game)}.png"

    def video(self, game: str, index: int) -> Path:
        """Return the path of the video of an episode; `game` is the name of the game."""
        return self.folder / "videos" / f"{_file_name(game)}_{index}.mp4"

    def record(self, game: str) -> Path | None:
        """Return the path of the document with all episodes of a game, or None if the run has none."""
        return None

    def owner(self, path: Path) -> OutputFolder:
        """Return the output folder whose list contains a file of the run."""
        return self.output

    def write(self, path: Path, data: bytes | Iterable[bytes]) -> None:
        """Write a file of the run."""
        self.owner(path).write(path, data)

    def check(self, config: RunRecord, *, videos: bool, report: bool) -> None:
        """Check, before anything is played, that the run will not overwrite foreign files."""
        paths = [self.run, self.episodes, self.summary]
        for name in {game.rpartition("-v")[0] for game in config.game_ids}:
            paths += [path for path in (self.record(name), self.curves(name)) if path is not None]
            paths += [self.video(name, index) for index in range(config.episodes if videos else 0)]
        if report:
            paths += [self.report, self.folder / "report" / UNFINISHED]
        for owner in {self.owner(path) for path in paths}:
            owner.check(*(path for path in paths if self.owner(path) is owner))

    def make_room(self) -> None:
        """Raise `UsageError` if the folder already contains a run."""
        if {self.run, self.episodes} & set(self.output.owned()):
            raise UsageError(f"{self.folder} already contains a run: --resume it, or choose another --output-dir")

    def clear_results(self) -> None:
        """Remove the report page, curves and videos of an earlier session."""
        curves = [path for path in self.output.owned() if path.match("curves_*.png") and path.parent == self.folder]
        self.output.remove(self.report, self.folder / "report", self.folder / "videos", *curves)

    def write_config(self, config: RunRecord) -> None:
        """Write `run.json`."""
        self.write(self.run, json_bytes(config))

    def write_summary(self, summary: RunSummary) -> None:
        """Write `summary.json`."""
        self.write(self.summary, json_bytes(summary))

    def complete(self) -> bool:
        """Return whether every episode of the run has a result."""
        summary = self.read_summary()
        if summary is None or summary.stop_reason is not None:
            return False
        return not any(game.unfinished for game in summary.games.values())

    def read_summary(self) -> RunSummary | None:
        """Read `summary.json`; None if it is missing or unreadable, since it can be rebuilt from the records."""
        try:
            return RunSummary.model_validate_json(self.summary.read_bytes())
        except (OSError, ValueError):
            return None


def _file_name(game: str) -> str:
    """Replace the characters of a game's name that are unsafe in file names, as in `gym:ALE/Breakout`."""
    return re.sub(r"[^\w.-]+", "_", game)


class ScriptFolder(RunFolder):
    """Files of an evaluation script.

    Main results go to `logs/NAME.json`, `logs/NAME.png`, `videos/NAME_0.mp4`, ..., everything else to `logs/NAME`.
    """

    def __init__(self, script_folder: Path, name: str) -> None:
        """Name the files: `script_folder` is the script's folder, and `name` is a prefix such as `test_2048`."""
        super().__init__(script_folder / "logs" / name)
        self.name = name
        self.script_output = OutputFolder(script_folder, marker=self.folder / SCRIPT_MARKER)
        self.logs, self.videos = self.folder.parent, self.folder.parent.parent / "videos"

    def curves(self, game: str) -> Path:
        """Return the path of the curves."""
        return self.logs / f"{self.name}.png"

    def video(self, game: str, index: int) -> Path:
        """Return the path of the video of an episode."""
        return self.videos / f"{self.name}_{index}.mp4"

    def record(self, game: str) -> Path | None:
        """Return the path of the document with all episodes."""
        return self.logs / f"{self.name}.json"

    def owner(self, path: Path) -> OutputFolder:
        """Return the output folder whose list contains a file of the run."""
        return self.output if path.is_relative_to(self.folder) else self.script_output

    def make_room(self) -> None:
        """Move the last run, without its report page, to another folder.

        A complete run replaces the one in `NAME.previous`; an incomplete run gets the first free folder of `NAME.1`,
        `NAME.2`, ... Files that vlmgym did not write are not moved. If `NAME.previous` contains such files, it is not
        replaced, and a complete run also gets a numbered folder.
        """
        if self.output.owned():
            self.output.remove(self.report, self.folder / "report")  # it links to videos that the new run replaces
            self.output.move(self._archive())
        else:
            self.output.list.rename()  # if the last move was killed before changing this id, the moved run shares it

    def _archive(self) -> OutputFolder:
        """Choose the destination of the last run; after an interrupted move, the folder with the files moved so far."""
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
        """Also remove the files of the last run next to the script, and give their list the id of this run."""
        super().clear_results()
        self.script_output.remove(self.script_output.folder)
        self.script_output.list.rename(self.output.list.id)


def saved_folder(folder: Path) -> RunFolder:
    """Return the folder of a saved run: a `ScriptFolder` if its videos are next to a script.

    Files next to the script belong to this run if their list has the same id as the list of the folder.
    """
    found = RunFolder(folder)
    if found.folder.parent.name != "logs" or not (found.folder / SCRIPT_MARKER).exists():
        return found
    script = ScriptFolder(found.folder.parent.parent, found.folder.name)
    return script if script.script_output.list.id == script.output.list.id else found
