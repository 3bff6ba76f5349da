"""Assemble the page: one file, or one file and a folder next to it."""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from rich.console import Console

from vlmgym import __version__
from vlmgym.evaluation.curves import EpisodeRewards
from vlmgym.evaluation.progress import call_in_order
from vlmgym.evaluation.report.document import asset, content_policy, safe_json
from vlmgym.evaluation.report.episode import EpisodePage, make_episode
from vlmgym.evaluation.report.facts import LabelledRun, game_facts, run_facts
from vlmgym.evaluation.report.store import EpisodeStore
from vlmgym.evaluation.suite import Suite, normalised
from vlmgym.evaluation.summary_table import PageTable
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import Summary
from vlmgym.records.store import StoredEpisode
from vlmgym.sandbox.registry import game_class
from vlmgym.statistics import difference_name
from vlmgym.workers.pool import ProcessPool

IMAGES = 200
"""Default number of episodes per game with images; drawing the images of 100 turns takes 0.3 s of CPU time."""
AHEAD = 8
"""Episodes in progress per worker, to keep all workers busy."""
SCRIPTS = ["texts", "data", "keys", "tabs", "overview", "curves", "videos", "list", "images", "pane", "viewer", "main"]
"""Scripts in `assets`, in concatenation order."""


@dataclass(frozen=True)
class Skills:
    """Profile of a run.

    Attributes:
        scores: Name, normalised score, standard error (None if unknown) and game ids of each skill.
        note: Text below the chart.
    """

    scores: Sequence[tuple[str, float, float | None, list[str]]]
    note: str

    @classmethod
    def of(cls, name: str, suite: Suite, games: Mapping[str, Summary]) -> Skills:
        """Make a run's profile from its summaries by game id and the suite's baselines; the note names the suite."""
        found = normalised(suite, games)
        return cls(
            [
                (skill, *value, [game for game in found.games if skill in game_class(game).skills])
                for skill, value in found.skills.items()
            ],
            "Means over the games that mainly test a skill, with 95% intervals: 0 is the random policy's score, 1 the "
            f"oracle's, both measured in {name} with at most {suite.max_turns} turns per episode.",
        )


def write_page(
    path: Path,
    runs: Sequence[LabelledRun],
    *,
    title: str,
    workers: ProcessPool,
    images: int | None = IMAGES,
    tables: Sequence[PageTable] = (),
    skills: Skills | None = None,
    console: Console | None = None,
) -> None:
    """Write the page of one or two runs.

    The page is replaced atomically. If the episodes are too large for the page, they are written to a folder named
    after the page, without `.html`. The same runs give the same bytes. The first `images` episodes of each game in each
    run have images; None means all episodes.
    """
    path = path.absolute()
    output = OutputFolder(path.parent)
    output.check(path)
    store = EpisodeStore(path, output)
    jobs = [_Job(i, number, source) for i, run in enumerate(runs) for number, source in enumerate(run.run.episodes)]
    pages: list[EpisodePage] = []

    def take(page: EpisodePage) -> None:
        store.add(jobs[len(pages)].name, page.data)
        pages.append(replace(page, data=""))

    try:
        calls = [(job.source, drawn) for job, drawn in zip(jobs, _with_images(jobs, images))]
        call_in_order(workers, make_episode, calls, take, label="Writing report", console=console, ahead=AHEAD)
        data = _page_data(path, title, runs, list(zip(jobs, pages)), images, tables, skills, store)
        output.write(path, _document(title, data, store.inline).encode())
        store.remove_others()
    finally:
        store.remove_unfinished()


@dataclass(frozen=True, slots=True)
class _Job:
    """An episode to add to the page.

    Attributes:
        run: Index of the run.
        number: Index of the episode within the run.
        source: The stored episode.
    """

    run: int
    number: int
    source: StoredEpisode

    @property
    def name(self) -> str:
        return f"{self.run}-{self.number}"


def _with_images(jobs: Sequence[_Job], images: int | None) -> list[bool]:
    """Return whether each episode gets images: the first `images` episodes of each game in each run do."""
    seen: Counter[tuple[int, str]] = Counter()
    chosen = []
    for job in jobs:
        key = job.run, job.source.game
        chosen.append(images is None or seen[key] < images)
        seen[key] += 1
    return chosen


def _page_data(
    path: Path,
    title: str,
    runs: Sequence[LabelledRun],
    made: Sequence[tuple[_Job, EpisodePage]],
    images: int | None,
    tables: Sequence[PageTable],
    skills: Skills | None,
    store: EpisodeStore,
) -> dict[str, Any]:
    found = [game for run in runs for game in run.run.config.game_ids] + [job.source.game for job, _ in made]
    games = list(dict.fromkeys(found))
    videos = [run.run.videos() for run in runs]
    rows: dict[tuple[int, int], list[dict[str, Any] | None]] = {}
    rewards: dict[tuple[str, int], list[EpisodeRewards]] = {}
    for job, page in made:
        game, seed = job.source.key
        cells = rows.setdefault((games.index(game), seed), [None] * len(runs))
        video = videos[job.run].get(job.source.key)
        cells[job.run] = {
            "number": job.number,
            "file": store.files.get(job.name),
            "video": None if video is None else quote(Path(os.path.relpath(video, path.parent)).as_posix()),
            **page.row,
        }
        if page.rewards is not None:
            rewards.setdefault((game, job.run), []).append(page.rewards)
    return {
        "title": title,
        "madeBy": f"vlmgym {__version__}",
        "runs": [run_facts(run) for run in runs],
        "games": [game_facts(game, runs, [rewards.get((game, i), []) for i in range(len(runs))]) for game in games],
        "episodes": [
            {"game": game, "seed": seed, "runs": cells, "difference": _difference(cells)}
            for (game, seed), cells in sorted(rows.items())
        ],
        "difference": difference_name(*(run.label for run in runs)) if len(runs) == 2 else None,
        "tables": tables,
        "skills": skills,
        "images": images,
        "folder": store.finish(),
    }


def _difference(cells: Sequence[Mapping[str, Any] | None]) -> float | None:
    scores = [cell["score"] for cell in cells if cell is not None and cell["score"] is not None]
    return scores[0] - scores[1] if len(scores) == 2 else None


def _document(title: str, data: dict[str, Any], inline: dict[str, str]) -> str:
    css = asset("base.css") + asset("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "})();\n"
    blocks = {"page": safe_json(data), **{f"episode-{name}": text for name, text in sorted(inline.items())}}
    others = "" if inline else " 'strict-dynamic'"  # the page's script loads episode files
    return Template(asset("page.html")).substitute(
        title=html.escape(title),
        policy=content_policy(css, script, others),
        css=css,
        script=script,
        data="\n".join(f'<script type="application/json" id="{name}">{text}</script>' for name, text in blocks.items()),
    )
