"""`vlmgym leaderboard RUN...`: rank runs of a suite on one page, with profiles, after verifying their scores."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vlmgym.benchmark.leaderboard import LeaderboardEntry, make_entry, ranked
from vlmgym.benchmark.suites import Suite, read_suite
from vlmgym.benchmark.verify import run_folder, verify_run
from vlmgym.errors import UsageError
from vlmgym.evaluation.config import RunArguments, SavedRunOptions
from vlmgym.evaluation.summary import rate_of_turns, summarise_run
from vlmgym.pages.document import app, cell, estimate_cell, number_cell
from vlmgym.runs.files import check_own_file, write_file
from vlmgym.runs.store import StoredRun, open_run
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class LeaderboardConfig(SavedRunOptions):
    """Options of `vlmgym leaderboard`."""

    run: RunArguments
    """Folders of runs of the same suite, or zips of them."""
    output: Path = Path("leaderboard.html")
    """The page."""
    verify: bool = True
    """Replay the responses of every run, as vlmgym verify does, and show the result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.run:
            raise UsageError("name the folders of one or more runs")


def leaderboard(config: LeaderboardConfig) -> list[LeaderboardEntry]:
    """Write the page, and return its entries in the order of `ranked`."""
    check_own_file(config.output)
    with ExitStack() as folders:
        runs = [open_run(folders.enter_context(run_folder(path)), config.data) for path in config.run]
        name = runs[0].config.suite
        if name is None or any(run.config.suite != name for run in runs):
            suites = (f"{path} is of {run.config.suite or 'no suite'}" for path, run in zip(config.run, runs))
            raise UsageError(f"all runs must be of the same suite: {', '.join(suites)}")
        entries = ranked([_entry(run, config) for run in runs])
    page = leaderboard_page(name, read_suite(name), entries, config.output.parent)
    write_file(config.output, page.encode())
    make_console().print(f"leaderboard {config.output}", soft_wrap=True)
    return entries


def _entry(run: StoredRun, config: LeaderboardConfig) -> LeaderboardEntry:
    """Make the entry of a run, and verify the run if this is configured."""
    if not config.verify:
        return make_entry(run, summarise_run(run), None)
    result = verify_run(run, config.workers)
    return make_entry(run, result.games or summarise_run(run), len(result.problems))


def leaderboard_page(name: str, suite: Suite, entries: Sequence[LeaderboardEntry], folder: Path) -> str:
    """Return the HTML of a suite's leaderboard.

    Args:
        name: Name of the suite.
        suite: The suite.
        entries: Entries in order, best first.
        folder: Folder of the page, to which links are relative.
    """
    skills = sorted({skill for entry in entries for skill in entry.suite.skills})
    rows = [_row(entry, skills, folder) for entry in entries]
    page = {
        "title": f"{name}: leaderboard",
        "suite": name,
        "lead": [
            suite.description,
            f"{len(suite.games)} games, {suite.episodes} episodes each with at most {suite.max_turns} turns, "
            f"seeds {suite.seed} to {suite.seed + suite.episodes - 1}, perception {suite.perception}, reasoning "
            f"{suite.reasoning}.",
        ],
        "columns": [{"name": column} for column in rows[0]],
        "rows": [{"cells": [*row.values()]} for row in rows],
        "profiles": [_profile(entry, folder) for entry in entries],
    }
    return app("leaderboard", page)


def _row(entry: LeaderboardEntry, skills: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the cells of an entry, by column."""
    count, games = entry.problems, entry.summaries.values()
    tokens = [game.completion_tokens for game in games if game.completion_tokens is not None]
    costs = [game.cost for game in games if game.cost is not None]
    verified = {None: "not checked", 0: "verified", 1: "1 difference"}.get(count, f"{count} differences")
    return {
        "model": cell(entry.label, **_link(entry, folder)),
        "prompt": cell(entry.prompt),
        "score": estimate_cell(entry.mean, bar=True),
        **{skill: estimate_cell(entry.suite.skills.get(skill)) for skill in skills},
        "perception gap": estimate_cell(entry.perception_gap),
        "sight gap": estimate_cell(entry.sight_gap),
        "illegal": number_cell(rate_of_turns(games, "illegal_rate"), ".1%"),
        "unparsable": number_cell(rate_of_turns(games, "unparsable_rate"), ".1%"),
        "tokens": number_cell(sum(tokens) if tokens else None, ",d"),
        "cost": number_cell(math.fsum(costs) if costs else None, ",.2f"),
        "verification": cell(verified),
        "policy": cell(entry.policy),
        "sampling": cell(entry.sampling),
        "date": cell(entry.config.started[:10]),
    }


def _link(entry: LeaderboardEntry, folder: Path, address: str = "") -> dict[str, str]:
    """Link to the report of an entry, if there is one; `address` is the URL fragment of an episode."""
    report = entry.run.folder.report
    return {"href": quote(Path(os.path.relpath(report, folder)).as_posix()) + address} if report.exists() else {}


def _profile(entry: LeaderboardEntry, folder: Path) -> dict[str, Any]:
    """Return the skills and games of an entry; games link to their first episodes."""
    rows = [[cell(skill), estimate_cell(value, bar=True)] for skill, value in entry.suite.skills.items()]
    for game, result in entry.suite.games.items():
        link = _link(entry, folder, f"#{quote(game, safe='')}/{entry.config.seed}/1")
        rows.append([cell(game, **link), estimate_cell(result.normalised, bar=True)])
    return {"label": entry.label, "prompt": entry.prompt, "rows": rows, "skills": len(entry.suite.skills)}
