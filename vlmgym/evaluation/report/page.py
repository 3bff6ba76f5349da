"""Puts the page together: data, style and scripts into one file, or into one file and a folder beside it."""

from __future__ import annotations

import asyncio
import hashlib
import html
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from string import Template
from typing import Any

from rich.console import Console
from rich.progress import Progress

import vlmgym
from vlmgym.evaluation.files import replace_file, writing
from vlmgym.evaluation.progress import COLUMNS
from vlmgym.evaluation.record import EpisodeRecord
from vlmgym.evaluation.report.document import asset, content_policy
from vlmgym.evaluation.report.episode import EpisodePage, StoredRecord, make_episode
from vlmgym.evaluation.report.facts import LabelledRun, game_facts, run_facts
from vlmgym.evaluation.report.texts import safe_json
from vlmgym.evaluation.runner import run_async
from vlmgym.evaluation.workers import Workers

PICTURES = 200
"""Episodes of each game whose pictures are drawn, unless more are asked for: 100 turns take a core 0.3 s."""
INLINE_BYTES = 8_000_000
"""The page holds all episodes itself as long as they are no larger than this together."""
SCRIPTS = ("texts", "data", "keys", "scores", "curves", "list", "pictures", "pane", "viewer", "main")
"""Files of `assets`, in the order in which they are joined."""


@dataclass(frozen=True)
class PageTable:
    """A table of plain text above the curves.

    Attributes:
        title: Its heading.
        columns: Heads of the columns; the first is that of the rows' names.
        rows: The cells of each row, the first is its name.
        note: A sentence below, or empty.
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
    workers: Workers,
    pictures: int | None = PICTURES,
    tables: Sequence[PageTable] = (),
    console: Console | None = None,
) -> None:
    """Write the page of a run, or of two side by side.

    The name of the page always stands for a whole page; a folder of the same name without `.html` holds the episodes if
    they are large. The same runs give the same bytes.

    Args:
        path: The page, for instance `report.html`.
        runs: One or two.
        title: What stands above.
        workers: Processes that draw and write.
        pictures: Of how many episodes of each game pictures are drawn, the first ones; None: of all.
        tables: More tables.
        console: Where progress is shown.

    Raises:
        UsageError: A record cannot be read.
        OutputError: A file cannot be written.
        WorkerError: A worker process died.
    """
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    store = _Store(path)
    try:
        made = _make_episodes(runs, workers, pictures, store, console)
        where = store.place()
        data = _page_data(title, runs, made, pictures, tables, where)
        replace_file(path, _document(title, data, store.inline).encode())
        store.remove_others()
    finally:
        store.remove_unfinished()


@dataclass(frozen=True, slots=True)
class _Made:
    """An episode that is in the page."""

    run: int
    number: int
    game: str
    seed: int
    page: EpisodePage


def _make_episodes(
    runs: Sequence[LabelledRun], workers: Workers, pictures: int | None, store: _Store, console: Console | None
) -> list[_Made]:
    made: list[_Made] = []

    async def make_all() -> None:
        with Progress(*COLUMNS, console=console, disable=console is None) as bar:
            task = bar.add_task("page", total=sum(len(run.episodes) for run in runs), facts="")
            waiting = iter(_jobs(runs))

            async def make_one_after_another() -> None:
                for run, number, source, game, seed, place in waiting:
                    drawn = pictures is None or place < pictures
                    page = await workers.call(make_episode, source, drawn)
                    store.add(f"{run}-{number}", page.data)
                    made.append(_Made(run, number, game, seed, EpisodePage(page.row, page.gains, "")))
                    bar.advance(task)

            await asyncio.gather(*(make_one_after_another() for _ in range(max(1, 2 * workers.count))))

    run_async(make_all())
    return sorted(made, key=lambda one: (one.run, one.number))


def _jobs(runs: Sequence[LabelledRun]) -> Iterator[tuple[int, int, EpisodeRecord | StoredRecord, str, int, int]]:
    """Run, number in it, source, game, seed, and place among the game's episodes, of every episode."""
    for i, run in enumerate(runs):
        places: dict[str, Iterator[int]] = {}
        for number, source in enumerate(run.episodes):
            game = source.game.id if isinstance(source, EpisodeRecord) else source.game
            yield i, number, source, game, source.seed, next(places.setdefault(game, count()))


def _page_data(
    title: str,
    runs: Sequence[LabelledRun],
    made: Sequence[_Made],
    pictures: int | None,
    tables: Sequence[PageTable],
    where: str | None,
) -> dict[str, Any]:
    games = list(dict.fromkeys([game for run in runs for game in run.asked.game_ids] + [one.game for one in made]))
    rows: dict[tuple[int, int], list[dict[str, Any] | None]] = {}
    gains: dict[tuple[str, int], list[list[float]]] = {}
    for one in made:
        cells = rows.setdefault((games.index(one.game), one.seed), [None] * len(runs))
        cells[one.run] = {"number": one.number, **one.page.row}
        if one.page.gains is not None:
            gains.setdefault((one.game, one.run), []).append(one.page.gains)
    return {
        "title": title,
        "madeBy": f"vlmgym {vlmgym.__version__}",
        "runs": [run_facts(run) for run in runs],
        "games": [game_facts(game, runs, [gains.get((game, i), []) for i in range(len(runs))]) for game in games],
        "episodes": [{"game": game, "seed": seed, "runs": cells} for (game, seed), cells in sorted(rows.items())],
        "tables": tables,
        "pictures": pictures,
        "folder": where,
    }


def _document(title: str, data: dict[str, Any], inline: dict[str, str]) -> str:
    css = asset("base.css") + asset("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "})();\n"
    blocks = {"page": safe_json(data), **{f"episode-{name}": text for name, text in sorted(inline.items())}}
    others = "" if inline else " 'strict-dynamic'"  # the script loads the episodes beside the page
    return Template(asset("page.html")).substitute(
        title=html.escape(title),
        policy=content_policy(css, script, others),
        css=css,
        script=script,
        data="\n".join(f'<script type="application/json" id="{name}">{text}</script>' for name, text in blocks.items()),
    )


_OWN = re.compile(r"[0-9a-f]{12}")
"""Names of folders of episodes."""


class _Store:
    """Episodes in the page while they are small, otherwise in a folder beside it that is named after what it holds."""

    def __init__(self, page: Path) -> None:
        self.folder = page.with_suffix("")
        self.inline: dict[str, str] = {}
        self._unfinished = self.folder / ".unfinished"
        self._beside = False
        self._bytes = 0
        self._digests: dict[str, str] = {}
        self._name: str | None = None

    def add(self, name: str, data: str) -> None:
        """Keep an episode."""
        self._digests[name] = hashlib.sha256(data.encode()).hexdigest()
        if self._beside:
            return self._write(name, data)
        self.inline[name] = data
        self._bytes += len(data)
        if self._bytes <= INLINE_BYTES:
            return None
        self._beside = True
        with writing(self._unfinished):
            shutil.rmtree(self._unfinished, ignore_errors=True)
            self._unfinished.mkdir(parents=True)
        for earlier, text in self.inline.items():
            self._write(earlier, text)
        self.inline.clear()
        return None

    def place(self) -> str | None:
        """Where the page finds the episodes: a path relative to it, or None if it holds them itself."""
        if not self._beside:
            return None
        self._name = hashlib.sha256(repr(sorted(self._digests.items())).encode()).hexdigest()[:12]
        place = self.folder / self._name
        with writing(place):
            shutil.rmtree(place, ignore_errors=True)
            self._unfinished.rename(place)
        return f"{self.folder.name}/{self._name}"

    def remove_others(self) -> None:
        """Remove what earlier pages of the same name needed."""
        others = list(self.folder.iterdir()) if self.folder.is_dir() else []
        for other in others:
            if other.name != self._name and _OWN.fullmatch(other.name):
                shutil.rmtree(other, ignore_errors=True)
        with suppress(OSError):  # holds this page's episodes, or what others put there
            self.folder.rmdir()

    def remove_unfinished(self) -> None:
        """Remove what an error left."""
        shutil.rmtree(self._unfinished, ignore_errors=True)

    def _write(self, name: str, data: str) -> None:
        path = self._unfinished / f"{name}.js"
        with writing(path):
            path.write_text(f'vlmgymEpisode("{name}",{data});\n', encoding="utf-8")
