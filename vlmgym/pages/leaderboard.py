"""`vlmgym leaderboard RUN ...`: rank runs of a suite on a page with a sortable table and a profile of each run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import tyro

from vlmgym import __version__
from vlmgym.benchmark.leaderboard import LeaderboardEntry, make_entry, ranked
from vlmgym.benchmark.suites import Suite, read_suite
from vlmgym.benchmark.verify import run_folder, verify_results
from vlmgym.errors import UsageError
from vlmgym.evaluation.config import SavedRunOptions
from vlmgym.evaluation.summary import summarise_run
from vlmgym.evaluation.tables import format_estimate
from vlmgym.pages.document import asset, document
from vlmgym.runs.files import check_own_file, write_file
from vlmgym.runs.record import Estimate
from vlmgym.runs.store import StoredRun, open_run
from vlmgym.terminal import make_console

WIDTH = 180
"""Width of a bar in SVG units, for a normalised score from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class LeaderboardConfig(SavedRunOptions):
    """Options of `vlmgym leaderboard`."""

    run: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")]
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
    result = verify_results(run, config.workers)
    return make_entry(run, result.games or summarise_run(run), len(result.problems))


def leaderboard_page(name: str, suite: Suite, entries: Sequence[LeaderboardEntry], folder: Path) -> str:
    """Return the HTML of a suite's leaderboard.

    Args:
        name: Name of the suite.
        suite: The suite.
        entries: Entries in order, best first.
        folder: Folder of the page, to which links are relative.
    """
    heads, rows = _columns(entries), [_cells(entry, _skills(entries), folder) for entry in entries]
    parts = {
        "suite": escape(name),
        "description": escape(suite.description),
        "settings": escape(
            f"{len(suite.games)} games, {suite.episodes} episodes each with at most {suite.max_turns} turns, "
            f"seeds {suite.seed} to {suite.seed + suite.episodes - 1}, perception {suite.perception}, reasoning "
            f"{suite.reasoning}."
        ),
        "heads": "".join(f'<th scope="col"><button>{escape(head)}</button></th>' for head in heads),
        "rows": "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows),
        "profiles": "".join(_profile(entry, folder) for entry in entries),
        "version": __version__,
    }
    return document(f"{name}: leaderboard", "leaderboard", parts, asset("leaderboard.js"))


def _columns(entries: Sequence[LeaderboardEntry]) -> list[str]:
    measured = ["perception gap", "sight gap", "illegal", "unparsable", "tokens", "cost", "verification"]
    stated = ["policy", "sampling", "date"]
    return ["model", "prompt", "score", *_skills(entries), *measured, *stated]


def _skills(entries: Sequence[LeaderboardEntry]) -> list[str]:
    return sorted({skill for entry in entries for skill in entry.skills})


def _cells(entry: LeaderboardEntry, skills: Sequence[str], folder: Path) -> list[str]:
    count = entry.problems
    verified = {None: "not checked", 0: "verified", 1: "1 difference"}.get(count, f"{count} differences")
    return [
        f'<th scope="row">{_link(entry, folder, entry.label)}</th>',
        _cell(entry.prompt, entry.prompt),
        _estimate(entry.mean, _bar(entry.mean)),
        *(_estimate(entry.skills.get(skill)) for skill in skills),
        _estimate(entry.perception_gap),
        _estimate(entry.sight_gap),
        _cell(entry.illegal, f"{entry.illegal:.1%}"),
        _cell(entry.unparsable, f"{entry.unparsable:.1%}"),
        _number(entry.tokens, ",d"),
        _number(entry.cost, ",.2f"),
        *(_cell(text, text) for text in (verified, entry.policy, entry.sampling, entry.config.started[:10])),
    ]


def _link(entry: LeaderboardEntry, folder: Path, name: str, address: str = "") -> str:
    """Link a name to the report of an entry, if there is one; `address` is the URL fragment of an episode."""
    if entry.report is None:
        return escape(name)
    page = quote(Path(os.path.relpath(entry.report, folder)).as_posix())
    return f'<a href="{page}{address}">{escape(name)}</a>'


def _number(value: float | None, form: str) -> str:
    return _cell("", "") if value is None else _cell(value, format(value, form))


def _estimate(value: Estimate | None, bar: str = "") -> str:
    return _cell("", "") if value is None else _cell(value[0], format_estimate(value), bar)


def _cell(key: object, shown: str, bar: str = "") -> str:
    """Return an HTML table cell with a sort key, text and, if given, a bar."""
    kind = "number" if isinstance(key, int | float) else "text"
    return f'<td class="{kind}" data-key="{escape(str(key))}">{escape(shown)}{bar}</td>'


def _bar(value: Estimate) -> str:
    """Draw a score with its 95% interval; values outside 0 to 1 are clipped."""
    error = 1.96 * (value[1] or 0.0)
    low, mean, high = (min(max(value[0] + side * error, 0.0), 1.0) * WIDTH for side in (-1, 0, 1))
    interval = f"95% interval {low / WIDTH:.2f} to {high / WIDTH:.2f}" if value[1] is not None else "no interval"
    return (
        f'<svg viewBox="0 0 {WIDTH} 12" preserveAspectRatio="none" role="img" aria-label="{interval}">'
        f'<rect class="track" width="{WIDTH}" height="12" rx="3"/>'
        f'<rect class="bar" width="{mean:.1f}" height="12" rx="3"/>'
        f'<path class="interval" d="M{low:.1f} 6H{high:.1f}M{low:.1f} 3V9M{high:.1f} 3V9"/></svg>'
    )


def _profile(entry: LeaderboardEntry, folder: Path) -> str:
    """Show the skills and games of an entry; games link to their first episodes."""
    names = {name: escape(name) for name in entry.skills}
    names |= {
        game: _link(entry, folder, game, f"#{quote(game, safe='')}/{entry.config.seed}/1") for game in entry.games
    }
    rows = "".join(
        f"<tr{' class=first' if name == next(iter(entry.games)) else ''}>"
        f'<th scope="row">{names[name]}</th><td class="number">{format_estimate(value)}</td><td>{_bar(value)}</td></tr>'
        for name, value in {**entry.skills, **entry.games}.items()
    )
    head = f'{escape(entry.label)} <span class="faint">{escape(entry.prompt)}</span>'
    return f'<article class="panel profile"><h3>{head}</h3><table>{rows}</table></article>'
