"""All runs in a folder, for `vlmgym view`: found again, and read again where their files have changed."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from vlmgym.errors import UsageError
from vlmgym.evaluation.compare import score_gaps, with_controls
from vlmgym.evaluation.saved_runs import SavedRun
from vlmgym.evaluation.summary import rate_of_turns, updated_summary
from vlmgym.evaluation.tables import run_title
from vlmgym.pages.compare import compare_many, distinct_labels
from vlmgym.pages.document import cell, estimate_cell, number_cell
from vlmgym.pages.episode import ListedEpisode, list_episode
from vlmgym.pages.report import LabelledRun, page_data, suite_parts
from vlmgym.pages.training import CURVE, SFT_CURVE, TrainingFolder
from vlmgym.runs.files import LOCK
from vlmgym.runs.record import RunRecord, RunSummary, Summary
from vlmgym.runs.run import RUN, RunFolder, check_ordinary
from vlmgym.runs.store import read_texts
from vlmgym.sandbox.core.prompt import PromptConfig
from vlmgym.statistics import mean_and_stderr

SCAN_INTERVAL = 0.5
"""Minimum number of seconds between two scans; a scan also takes at most a tenth of the time."""
MOST_COMPARED = 8
"""Maximum number of runs on one page, which has as many colours."""
COLUMNS = (
    ("run", False),
    ("state", True),
    ("game", True),
    ("score", False),
    ("95% interval", False),
    ("model", True),
    ("level", True),
    ("prompt", True),
    ("perception gap", False),
    ("sight gap", False),
    ("episodes", False),
    ("invalid", False),
    ("tokens", False),
    ("cost", False),
    ("started", False),
)
"""Columns of the list of runs: name, and whether the list can be filtered by it."""
OPTIONAL = ("perception gap", "sight gap", "tokens", "cost")
"""Columns that are hidden while they are empty."""

Stamp = tuple[object, ...]


def is_running(folder: Path) -> bool:
    """Return whether a process holds the lock of an output folder."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # does not wait for a FIFO
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def state_of(config: RunRecord, summary: RunSummary, running: bool) -> tuple[str, str, float]:
    """Return the state of a run (running, finished, failed or stopped), a description, and its progress from 0 to 1."""
    games = summary.games.values()
    done, planned = sum(game.episodes for game in games), sum(map(config.episodes_of, config.game_ids))
    errors = sum(game.unfinished.get("error", 0) for game in games)
    counts = f"{done:,} of {planned:,}"
    state = "running" if running else "finished" if done >= planned else "failed" if errors else "stopped"
    words = {"finished": "finished", "failed": f"failed, {errors:,} errors"}.get(state, f"{state}, {counts}")
    return state, words, min(1.0, done / max(1, planned))


@dataclass
class LibraryRun:
    """A saved run and what was read of it.

    Attributes:
        name: Path of the run in the folder of the library.
        saved: The run.
        running: Whether a process writes to it.
        listed: Listed episodes, by file and offset of their records.
    """

    name: str
    saved: SavedRun
    running: bool
    listed: dict[tuple[Path, int, int], ListedEpisode] = field(default_factory=dict)

    @cached_property
    def summary(self) -> RunSummary:
        """Summary of the records so far."""
        if not self.running:
            return self.saved.summary
        return updated_summary(self.saved.stored).model_copy(update={"stop_reason": None})

    @cached_property
    def scores(self) -> dict[tuple[str, int], float]:
        """Score of each episode, by game and seed."""
        try:
            return self.saved.stored.scores
        except UsageError:  # the page of the run says why; its summary can be read
            return {}

    def settings(self) -> tuple[str, PromptConfig]:
        """Return what must be equal in the controls of the run, and the prompts, which differ."""
        fields = {"games", "policy", "reward", "max_turns", "curriculum"}
        return self.saved.config.model_dump_json(include=fields), self.saved.config.prompts

    def labelled(self, label: str) -> LabelledRun:
        """Return the run as its page shows it; only episodes that are not `listed` yet are read."""
        run = self.saved.stored
        keys = [(stored.file, stored.offset, stored.length) for stored in run.episodes]
        known = [*map(self.listed.get, keys)]
        unread = [stored for stored, listed in zip(run.episodes, known) if listed is None]
        fresh = map(list_episode, unread, read_texts(unread))
        self.listed = {key: listed or next(fresh) for key, listed in zip(keys, known)}
        videos = {key: f"video?{urlencode({'run': self.name, 'game': key[0], 'seed': key[1]})}" for key in run.videos()}
        return LabelledRun(label, run, self.summary, [*self.listed.values()], videos)

    def rows(self, text: LibraryRun | None, grey: LibraryRun | None) -> list[dict[str, Any]]:
        """Return a row of the list for each game, and for the suite; `text` and `grey` are the controls of the run."""
        config, summary = self.saved.config, self.summary
        state, words, progress = state_of(config, summary, self.running)
        levels, prompts = config.difficulty, config.prompts
        level = "curriculum" if levels is None else f"{levels.perception}/{levels.reasoning}"
        shown = prompts.observation if prompts.images == "true" else f"{prompts.images} images"
        prompt = ", ".join([shown, *(["chat"] if prompts.chat else []), *prompts.scaffolding])
        bar = {"progress": progress} if state == "running" else {}
        link = f"run?{urlencode({'run': self.name})}"

        def row(game: str, score: dict[str, Any], interval: dict[str, Any], results: Collection[Summary]) -> Any:
            counted = [result for result in results if result.prompt_tokens]
            tokens = [(result.prompt_tokens or 0) + (result.completion_tokens or 0) for result in counted]
            costs = [result.cost for result in results if result.cost is not None]
            cells = (
                cell(self.name, href=link),
                cell(words, group=state, **bar),
                cell(game),
                score,
                interval,
                cell(config.policy.model or config.policy.name),
                cell(level),
                cell(prompt),
                gap_cell(text, self if text else None, game),
                gap_cell(self if grey else None, grey, game),
                number_cell(sum(result.episodes for result in results), ",d"),
                number_cell(rate_of_turns(results, "illegal_rate", "unparsable_rate"), ".1%"),
                number_cell(sum(tokens), ",d") if tokens else cell(""),
                number_cell(sum(costs), ",.4g") if costs else cell(""),
                cell(config.started[:16].replace("T", " "), config.started),
            )
            return {"run": self.name, "cells": cells}

        rows = []
        if config.suite is not None and summary.suite is not None:
            rows.append(
                row(config.suite, estimate_cell(summary.suite.score, bar=True), cell(""), summary.games.values())
            )
        for game, result in summary.games.items():
            ends = result.score_ci
            interval = cell("") if ends is None else cell(f"{ends[0]:,.4g} to {ends[1]:,.4g}", ends[0])
            rows.append(row(game, number_cell(result.score_mean, ",.4g"), interval, [result]))
        return rows


def gap_cell(first: LibraryRun | None, second: LibraryRun | None, game: str) -> dict[str, Any]:
    """Return the cell of the mean difference in score between two runs of a game, over the seeds that both have."""
    gaps = [] if first is None or second is None else score_gaps(first.scores, second.scores, game)
    if not gaps:
        return cell("")
    mean, error = mean_and_stderr(gaps)
    return cell(f"{mean:+,.3g}" + ("" if error is None else f" ± {error:,.2g}"), mean)


@dataclass(frozen=True)
class Entry:
    """What the list shows of a run or a training.

    Attributes:
        kind: `evaluation` or `training`.
        rows: Rows of the list; empty if it was removed.
        version: Version of the library in which the rows changed.
    """

    kind: str
    rows: Sequence[Mapping[str, Any]]
    version: int


class Library:
    """The runs and trainings in a folder, at any depth, without hidden folders and links."""

    def __init__(self, root: Path) -> None:
        """Name the folder; `scan` reads it."""
        self.root = root.absolute()
        self.version = 0
        self.entries = dict[str, Entry]()
        self.runs: dict[str, LibraryRun] = {}
        self.trainings: dict[str, TrainingFolder] = {}
        self.lock = Lock()
        self._stamps: dict[str, Stamp] = {}
        self._problems: dict[str, str] = {}
        self._next_scan = 0.0

    def scan(self) -> int:
        """Read what has changed, unless the last scan was just before; return the version of the library."""
        with self.lock:
            start = time.monotonic()
            if start >= self._next_scan:
                self._scan()
                end = time.monotonic()
                self._next_scan = end + max(SCAN_INTERVAL, 9 * (end - start))
            return self.version

    def changed(self, since: int) -> dict[str, Entry]:
        """Return the entries that have changed since a version."""
        with self.lock:
            return {name: entry for name, entry in self.entries.items() if entry.version > since}

    def _scan(self) -> None:
        stamps: dict[str, Stamp] = {}
        for path, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            files = {*names}.intersection((RUN, CURVE, SFT_CURVE))
            if files:
                folder = Path(path)
                running = LOCK in names and is_running(folder)
                name = os.fsencode(folder.relative_to(self.root)).decode("utf-8", "backslashreplace")
                stamps[name] = self._read(name, folder, RUN in files, running, names)
        for name in self._stamps.keys() - stamps.keys():
            for table in (self.runs, self.trainings, self._problems):
                table.pop(name, None)
        self._stamps = stamps
        self._update()

    def _read(self, name: str, folder: Path, is_run: bool, running: bool, names: Sequence[str]) -> Stamp:
        """Read a run or a training again if its files have changed; return their stamp."""
        watched = ("summary.json", "episodes.jsonl", CURVE, SFT_CURVE, "config.json", "result.json")
        steps = sum(file.startswith("step_") for file in names)
        stamp = (running, steps, *(_stat(folder / file) for file in (RUN, *watched)))
        if self._stamps.get(name) == stamp:
            return stamp
        self._problems.pop(name, None)
        try:
            if is_run:
                run = RunFolder(folder)
                run.check_links()
                earlier = self.runs.get(name)
                fresh = LibraryRun(name, SavedRun(run, run.read_config()), running)
                if earlier is not None and earlier.saved.config == fresh.saved.config:
                    fresh.listed = earlier.listed
                fresh.summary  # noqa: B018 - raises if the records cannot be read
                self.runs[name] = fresh
            else:
                check_ordinary(folder / file for file in watched)
                training = TrainingFolder(name, folder, running)
                training.row()
                self.trainings[name] = training
        except (UsageError, OSError) as error:
            self.runs.pop(name, None)
            self.trainings.pop(name, None)
            self._problems[name] = str(error)
        return stamp

    def _update(self) -> None:
        """Make all rows again, and note which have changed."""
        fresh: dict[str, tuple[str, list[dict[str, Any]]]] = {
            run.name: ("evaluation", run.rows(text, grey))
            for run, text, grey in with_controls([*self.runs.values()], LibraryRun.settings)
        }
        for name, problem in self._problems.items():
            cells = [cell("") for _ in COLUMNS]
            cells[0], cells[1] = cell(name), cell(f"unreadable: {problem}", group="unreadable")
            fresh[name] = ("evaluation", [{"cells": cells}])
        fresh |= {name: ("training", [training.row()]) for name, training in self.trainings.items()}
        fresh |= {name: (entry.kind, []) for name, entry in self.entries.items() if name not in fresh}
        changed = {
            name: value
            for name, value in fresh.items()
            if name not in self.entries or (self.entries[name].kind, self.entries[name].rows) != value
        }
        if changed:
            self.version += 1
            for name, (kind, rows) in changed.items():
                self.entries[name] = Entry(kind, rows, self.version)

    def report(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the data of the page of some runs, which are compared with the first.

        Raises:
            UsageError: A run is missing or unreadable, or there are too many.
        """
        if not 0 < len(names) <= MOST_COMPARED:
            raise UsageError(f"choose 1 to {MOST_COMPARED} runs, got {len(names)}")
        if len({*names}) < len(names):
            raise UsageError("a run is named twice: choose different runs")
        with self.lock:
            version, runs = self.version, [self.run(name) for name in names]
            stored = [run.saved.stored for run in runs]
            labels = distinct_labels(stored)
            labelled = [run.labelled(label) for label, run in zip(labels, runs)]
        if len(runs) > 1:
            more, title = compare_many(stored, labels), " vs ".join(labels)
        else:
            more, title = suite_parts(runs[0].saved.config, runs[0].summary.suite), runs[0].name
        data = page_data(title, labelled, **more)
        for run, facts in zip(runs, data["runs"]):
            state, words, _ = state_of(run.saved.config, run.summary, run.running)
            facts["lead"] = [run_title(run.saved.config), *facts["lead"]]
            diagnosis = run.saved.stored.folder.diagnosis.is_file()
            facts["diagnosis"] = f"diagnosis?{urlencode({'run': run.name})}" if diagnosis else ""
            facts["progress"] = "" if state == "finished" else f"{words[:1].upper()}{words[1:]} episodes."
        return {**data, "live": {"runs": names, "version": version}}

    def run(self, name: str) -> LibraryRun:
        """Return a run by its name; raise `UsageError` if there is none."""
        if name not in self.runs:
            raise UsageError(self._problems.get(name) or f"there is no run {name!r} in {self.root}")
        return self.runs[name]

    def training(self, name: str) -> dict[str, Any]:
        """Return the data of the page of a training; raise `UsageError` if there is none."""
        if name not in self.trainings:
            raise UsageError(f"there is no training {name!r} in {self.root}")
        inside = [run for run in self.runs if run.startswith(f"{name}/" if name != "." else "")]
        return {
            **self.trainings[name].page(),
            "inside": [(run, f"run?{urlencode({'run': run})}") for run in inside],
            "live": {"runs": [name], "version": self.version},
        }

    def list(self) -> dict[str, Any]:
        """Return the data of the list of all runs and trainings."""
        home = Path.home()
        return {
            "title": f"vlmgym: {self.root.name}",
            "folder": f"~/{self.root.relative_to(home)}" if self.root.is_relative_to(home) else str(self.root),
            "columns": [{"name": name, "filter": filtered, "optional": name in OPTIONAL} for name, filtered in COLUMNS],
            "trainingColumns": [{"name": name} for name in TrainingFolder.COLUMNS],
            "entries": self.changed(0),
            "mostCompared": MOST_COMPARED,
            "command": f"vlmgym eval 2048 --episodes 5 --output-dir {shlex.quote(str(self.root / 'first'))}",
            "live": {"version": self.version},
        }


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
