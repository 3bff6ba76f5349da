"""The folder of a run: the paths of its files, and the copies of an evaluation script's results beside the script."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

from vlmgym.errors import UsageError
from vlmgym.runs.files import LOCK, json_bytes, output_folder, read_model, replace_file, write_file, writing
from vlmgym.runs.record import RunRecord, RunSummary

RUN = "run.json"
"""Name of the file that makes a folder a run."""


def check_ordinary(paths: Iterable[Path]) -> None:
    """Raise `UsageError` if a file of a run is a link, which may lead out of its folder, or a pipe, which may block."""
    special = [path for path in paths if path.is_symlink() or path.is_fifo()]
    if special:
        raise UsageError(f"{special[0]} must be an ordinary file in the folder of the run, not a link or a pipe")


class RunFolder:
    """Files of a run: `run.json`, `episodes.jsonl` (a line per episode), `summary.json`, curves, videos, a report page.

    A folder with `run.json` is a run. Its fixed names belong to vlmgym, which may replace or remove them; all other
    files are the user's.
    """

    def __init__(self, folder: Path) -> None:
        """Name the files; reads and writes nothing."""
        self.folder = folder.absolute()  # a policy may change the working directory
        self.run = self.folder / RUN
        self.episodes = self.folder / "episodes.jsonl"
        self.steps = "step_*.jsonl"
        """Pattern of the files with the episodes of each training step, in addition to or instead of `episodes`."""
        self.summary = self.folder / "summary.json"
        self.report = self.folder / "report.html"
        self.diagnosis = self.folder / "diagnose.json"
        """Numbers of `vlmgym diagnose`, whose page is beside them."""
        self.videos = self.folder / "videos"

    def curves(self, game: str) -> Path:
        """Return the path of the curves of a game; `game` is its name."""
        return self.folder / f"curves_{_file_name(game)}.png"

    def video(self, game: str, index: int) -> Path:
        """Return the path of the video of an episode; `game` is the name of the game."""
        return self.videos / f"{_file_name(game)}_{index}.mp4"

    def reserved(self) -> AbstractContextManager[Path]:
        """Create the folder if needed, and lock it against other processes; see `output_folder`."""
        self.check_links()
        return output_folder(self.folder, RUN)

    def check_links(self) -> None:
        """Raise `UsageError` if a file of the run is a link, which may lead out of it, or a pipe, which may block."""
        names = (self.run, self.episodes, self.summary, self.report, self.diagnosis, self.videos)
        with writing(self.folder):
            check_ordinary((*names, self.folder / "tensorboard", *self.folder.glob(self.steps)))

    @contextmanager
    def new_run(self, config: RunRecord, *, replace: bool = False) -> Iterator[None]:
        """Reserve the folder and begin a run; if the block records no episode, the folder stays as it was.

        Args:
            config: Contents of `run.json`.
            replace: Replace an earlier run in the folder.

        Raises:
            UsageError: The folder has a run in which a turn was played, or files that are not of a run.
        """
        with self.reserved():
            if self.run.exists():
                self.read_config()
            if self._has_turns() and not replace:
                raise UsageError(f"{self.folder} already contains a run: --resume it, or choose another --output-dir")
            with writing(self.folder):
                self.summary.unlink(missing_ok=True)
                self.episodes.unlink(missing_ok=True)
            replace_file(self.run, json_bytes(config))
            try:
                yield
            finally:
                if not self._has_episodes():
                    self._discard()

    def _has_episodes(self) -> bool:
        has_log = self.episodes.exists() and self.episodes.stat().st_size > 0
        return has_log or any(self.folder.glob(self.steps))

    def _has_turns(self) -> bool:
        """Return whether a turn was played; a run of which each episode failed at its start may be replaced."""
        if not self.episodes.exists():
            return self._has_episodes()
        with writing(self.episodes), self.episodes.open("rb") as lines:
            return any(b'"turns":[]' not in line for line in lines)

    def _discard(self) -> None:
        """Remove the files of a run without episodes; with other files in the folder, `run.json` stays to mark it."""
        with writing(self.folder):
            self.episodes.unlink(missing_ok=True)
            if {path.name for path in self.folder.iterdir()} <= {RUN, LOCK}:
                self.run.unlink(missing_ok=True)

    def read_config(self) -> RunRecord:
        """Read `run.json`; raise `UsageError` if it is missing or not of a run."""
        if not self.run.exists() and (runs := sorted(path.parent for path in self.folder.glob(f"*/{RUN}"))):
            raise UsageError(f"{self.folder} is not a run but contains runs: choose one, such as {runs[0]}")
        return read_model(self.run, RunRecord, f"{self.folder} is not a run")

    def write_summary(self, summary: RunSummary) -> None:
        """Write `summary.json`."""
        replace_file(self.summary, json_bytes(summary))

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
    """The run of an evaluation script in `logs/NAME`, with copies of its main results beside the script.

    These are `logs/NAME.json`, `logs/NAME.png` and `videos/NAME_0.mp4`, `videos/NAME_1.mp4`, ... The run before is kept
    in the first free folder of `logs/NAME.1`, `logs/NAME.2`, ...
    """

    def __init__(self, script_folder: Path, name: str) -> None:
        """Name the files: `script_folder` is the script's folder, and `name` is a prefix such as `test_2048`."""
        super().__init__(script_folder / "logs" / name)
        self.name = name
        self.document = self.folder.with_name(f"{name}.json")
        self.image = self.folder.with_name(f"{name}.png")
        self._videos = self.folder.parent.parent / "videos"

    @contextmanager
    def new_run(self, config: RunRecord, *, replace: bool = False) -> Iterator[None]:
        """Move the last run away and begin another; if that records no episode, the last run is moved back."""
        if not self.run.exists():
            for path in (self.document, self.image, *self._copies()):
                if os.path.lexists(path):
                    raise UsageError(f"{path} exists, but no run {self.folder} that wrote it: move it away")
        last_folder = None
        if self._has_turns():
            with self.reserved():
                pass
            last_folder = next(
                path for n in count(1) if not os.path.lexists(path := self.folder.with_name(f"{self.name}.{n}"))
            )
            with writing(last_folder):
                self.folder.rename(last_folder)
        try:
            with super().new_run(config):
                yield
        finally:
            if last_folder is not None and not self.folder.exists():
                with writing(self.folder):
                    last_folder.rename(self.folder)

    def copy_results(self, document: Iterable[bytes], curves: Path, videos: Iterable[Path]) -> list[Path]:
        """Write the document with all episodes, and copy curves and videos; return the paths beside the script."""
        replace_file(self.document, document)
        for path in self._copies():
            with writing(path):
                path.unlink()
        copies = [(curves, self.image)]
        for video in videos:
            copies.append((video, self._videos / f"{self.name}_{video.stem.rpartition('_')[2]}.mp4"))
        copies = [(source, copy) for source, copy in copies if source.exists()]
        for source, copy in copies:
            write_file(copy, source.read_bytes())
        return [self.document, *(copy for _, copy in copies)]

    def _copies(self) -> list[Path]:
        """Return the existing copies of videos, not those of a script whose name begins with this one's."""
        name = re.compile(rf"{re.escape(self.name)}_\d+\.mp4")
        return [path for path in self._videos.glob("*.mp4") if name.fullmatch(path.name)]
