"""Assemble the page: one file, or one file and a folder next to it."""

from __future__ import annotations

import asyncio
import html
import os
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.progress import Progress

import vlmgym
from vlmgym.evaluation.curves import EpisodeRewards
from vlmgym.evaluation.progress import COLUMNS
from vlmgym.evaluation.report.document import asset, content_policy
from vlmgym.evaluation.report.episode import EpisodePage, StoredRecord, make_episode
from vlmgym.evaluation.report.facts import LabelledRun, game_facts, run_facts
from vlmgym.evaluation.report.store import EpisodeStore
from vlmgym.evaluation.report.texts import safe_json
from vlmgym.evaluation.statistics import difference, difference_name
from vlmgym.records.episode import EpisodeRecord
from vlmgym.records.output_folder import OutputFolder
from vlmgym.rollout.event_loop import run_async
from vlmgym.workers.pool import ProcessPool

IMAGES = 200
"""Default number of episodes per game with images; 100 turns take 0.3 s of CPU."""
AHEAD = 8
"""Episodes in progress per worker, to keep all workers busy."""
SCRIPTS = (
    "texts",
    "data",
    "keys",
    "tabs",
    "overview",
    "curves",
    "videos",
    "list",
    "images",
    "pane",
    "viewer",
    "main",
)
"""Files of `assets`, in order of concatenation."""


@dataclass(frozen=True)
class PageTable:
    """A plain-text table above the curves.

    Attributes:
        title: Heading.
        columns: Column headings, the first for the row names.
        rows: Cells of each row, starting with its name.
        note: Text below the table, or empty.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def write_page(
    path: Path,
    runs: Sequence[LabelledRun],
    *,
    title: str,
    workers: ProcessPool,
    images: int | None = IMAGES,
    tables: Sequence[PageTable] = (),
    console: Console | None = None,
) -> None:
    """Write the page of one or two runs.

    The page is replaced atomically; large episodes go to a folder of the same name without `.html`. The same runs
    give the
    same bytes.

    Args:
        path: Output page, such as `report.html`.
        runs: One or two.
        title: Page title.
        workers: Worker pool.
        images: Number of episodes per game with images; None: all.
        tables: Additional tables.
        console: Console for progress.

    Raises:
        UsageError: A record cannot be read, or a file not written by vlmgym is in the way.
        OutputError: A file cannot be written.
        WorkerError: A worker process died.
    """
    path = path.absolute()
    output = OutputFolder(path.parent)
    output.check(path)
    store = EpisodeStore(path, output)
    try:
        made = _make_episodes(runs, workers, images, store, console)
        data = _page_data(path, title, runs, made, images, tables, store)
        output.write(path, _document(title, data, store.inline).encode())
        store.remove_others()
    finally:
        store.remove_unfinished()


@dataclass(frozen=True, slots=True)
class _Job:
    """An episode to add: run index, index within the run, and source."""

    run: int
    number: int
    source: EpisodeRecord | StoredRecord
    game: str
    drawn: bool

    @property
    def name(self) -> str:
        return f"{self.run}-{self.number}"


@dataclass(frozen=True, slots=True)
class _Made:
    """An episode on the page."""

    job: _Job
    row: Mapping[str, Any]
    rewards: EpisodeRewards | None


def _make_episodes(
    runs: Sequence[LabelledRun], workers: ProcessPool, images: int | None, store: EpisodeStore, console: Console | None
) -> list[_Made]:
    made: list[_Made] = []
    # In order, so that the same runs give the same files.
    waiting: deque[tuple[_Job, asyncio.Task[EpisodePage]]] = deque()

    async def make_all() -> None:
        with Progress(*COLUMNS, console=console, disable=console is None) as bar:
            task = bar.add_task("page", total=sum(len(run.episodes) for run in runs))

            async def take() -> None:
                job, page = waiting.popleft()
                finished = await page
                store.add(job.name, finished.data)
                made.append(_Made(job, finished.row, finished.rewards))
                bar.advance(task)

            try:
                for job in _jobs(runs, images):
                    call = workers.call(make_episode, job.source, job.drawn)
                    waiting.append((job, asyncio.create_task(call)))
                    if len(waiting) > AHEAD * workers.count:
                        await take()
                while waiting:
                    await take()
            finally:
                rest = [page for _, page in waiting]
                for page in rest:
                    page.cancel()
                await asyncio.gather(*rest, return_exceptions=True)

    run_async(make_all())
    return made


def _jobs(runs: Sequence[LabelledRun], images: int | None) -> Iterator[_Job]:
    for run, labelled in enumerate(runs):
        seen: Counter[str] = Counter()
        for number, source in enumerate(labelled.episodes):
            game = source.game.id if isinstance(source, EpisodeRecord) else source.game
            yield _Job(run, number, source, game, drawn=images is None or seen[game] < images)
            seen[game] += 1


def _page_data(
    path: Path,
    title: str,
    runs: Sequence[LabelledRun],
    made: Sequence[_Made],
    images: int | None,
    tables: Sequence[PageTable],
    store: EpisodeStore,
) -> dict[str, Any]:
    games = list(dict.fromkeys([game for run in runs for game in run.config.game_ids] + [one.job.game for one in made]))
    rows: dict[tuple[int, int], list[dict[str, Any] | None]] = {}
    rewards: dict[tuple[str, int], list[EpisodeRewards]] = {}
    for one in made:
        job = one.job
        key = (job.game, job.source.seed)
        cells = rows.setdefault((games.index(job.game), job.source.seed), [None] * len(runs))
        video = runs[job.run].videos.get(key)
        cells[job.run] = {
            "number": job.number,
            "file": store.files.get(job.name),
            "video": None if video is None else quote(Path(os.path.relpath(video, path.parent)).as_posix()),
            **one.row,
        }
        if one.rewards is not None:
            rewards.setdefault((job.game, job.run), []).append(one.rewards)
    return {
        "title": title,
        "madeBy": f"vlmgym {vlmgym.__version__}",
        "runs": [run_facts(run) for run in runs],
        "games": [game_facts(game, runs, [rewards.get((game, i), []) for i in range(len(runs))]) for game in games],
        "episodes": [
            {"game": game, "seed": seed, "runs": cells, "difference": _difference(cells)}
            for (game, seed), cells in sorted(rows.items())
        ],
        "difference": difference_name(*(run.label for run in runs)) if len(runs) == 2 else None,
        "tables": tables,
        "images": images,
        "folder": store.place(),
    }


def _difference(cells: Sequence[Mapping[str, Any] | None]) -> float | None:
    scores = [cell["score"] for cell in cells if cell is not None and cell["score"] is not None]
    return difference(scores[0], scores[1]) if len(scores) == 2 else None


def _document(title: str, data: dict[str, Any], inline: dict[str, str]) -> str:
    css = asset("base.css") + asset("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "})();\n"
    blocks = {"page": safe_json(data), **{f"episode-{name}": text for name, text in sorted(inline.items())}}
    others = "" if inline else " 'strict-dynamic'"  # the script loads episode files
    return Template(asset("page.html")).substitute(
        title=html.escape(title),
        policy=content_policy(css, script, others),
        css=css,
        script=script,
        data="\n".join(f'<script type="application/json" id="{name}">{text}</script>' for name, text in blocks.items()),
    )
