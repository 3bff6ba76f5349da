"""`vlmgym report RUN`: write report.html of a saved run: scores, curves and an episode viewer.

The page opens from disk, makes no network requests and needs no build step. It contains two kinds of data:

- page data: everything shown initially, and a summary row per game and seed.
- episode data: text and images of one episode, compressed, and read when the episode is shown.

A page shows one or more runs. With several, the viewer has a pane per run, and all panes change turns together; results
of the comparison are passed as plain text. `vlmgym view` serves the same page, and its episodes one by one.

Recorded text is escaped and only ever becomes text nodes; a content security policy allows only the page's own scripts.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vlmgym.benchmark.suites import summarise
from vlmgym.errors import UsageError
from vlmgym.evaluation.config import RunArgument, SavedRunOptions
from vlmgym.evaluation.curves import EpisodeRewards, mean_curve
from vlmgym.evaluation.progress import call_in_order
from vlmgym.evaluation.tables import PageTable, bias_note, control_note, game_rows, run_title, suite_table
from vlmgym.pages.document import app, rounded
from vlmgym.pages.episode import ListedEpisode, packed_episode
from vlmgym.runs.files import write_file
from vlmgym.runs.record import RunRecord, RunSummary, SuiteSummary
from vlmgym.runs.store import StoredEpisode, StoredRun, open_run
from vlmgym.sandbox.registry import game_class
from vlmgym.statistics import difference_name
from vlmgym.terminal import make_console
from vlmgym.workers.pool import ProcessPool

IMAGES = 200
"""Default number of episodes per game with images; drawing the images of 100 turns takes 0.3 s of CPU time."""
AHEAD = 8
"""Episodes in progress per worker, to keep all workers busy."""
SINGLE_CURVES = 40
"""Maximum number of single-episode curves per game and run."""


@dataclass(frozen=True, kw_only=True)
class ReportConfig(SavedRunOptions):
    """Options of `vlmgym report`."""

    run: RunArgument
    """Run folder."""
    images: str = str(IMAGES)
    """Number of episodes per game with images, or all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.images != "all" and not (self.images.isascii() and self.images.isdecimal()):
            raise UsageError(f"images must be a number of episodes or all, got {self.images!r}")


def report(config: ReportConfig) -> None:
    """Write the report of a saved run into its folder."""
    console = make_console()
    run = open_run(config.run, config.data)
    with run.folder.reserved():
        images = None if config.images == "all" else int(config.images)
        with config.pool(len(run.episodes)) as workers:
            write_report(run, summarise(run), workers, images)
    console.print(f"report  {run.folder.report}", soft_wrap=True)


def write_report(run: StoredRun, summary: RunSummary, workers: ProcessPool, images: int | None = IMAGES) -> None:
    """Write the report of a run into its folder; see `write_page`."""
    write_page(
        run.folder.report,
        [LabelledRun(run.config.policy.label, run, summary)],
        title=run_title(run.config),
        workers=workers,
        images=images,
        **suite_parts(run.config, summary.suite),
    )


@dataclass(frozen=True)
class LabelledRun:
    """A run shown in a report.

    Attributes:
        label: Label of the run.
        run: The run.
        summary: Its summary.
        listed: What the list shows of its episodes, in order.
        videos: Links to its videos, by game and seed.
    """

    label: str
    run: StoredRun
    summary: RunSummary
    listed: Sequence[ListedEpisode] = ()
    videos: Mapping[tuple[str, int], str] = field(default_factory=dict)


def suite_parts(config: RunRecord, suite: SuiteSummary | None) -> dict[str, Any]:
    """Return what the page of a run of a suite shows in addition: `tables` and `skills` of `page_data`.

    The skills are name, score, standard error and games of each, and a note.
    """
    if config.suite is None or suite is None:
        return {}
    scores = [
        (skill, *value, [game for game in suite.games if skill in game_class(game).skills])
        for skill, value in suite.skills.items()
    ]
    note = (
        "Means over the games that mainly test a skill, with 95% intervals: 0 is the random policy's score, 1 the "
        f"oracle's, both measured in {config.suite} with at most {config.max_turns} turns per episode."
    )
    return {
        "tables": [suite_table(config.suite, suite)],
        "skills": {"scores": scores, "note": note} if scores else None,
    }


def write_page(
    path: Path,
    runs: Sequence[LabelledRun],
    *,
    title: str,
    workers: ProcessPool,
    images: int | None = IMAGES,
    **more: Any,
) -> None:
    """Write the page of some runs; `more` is passed to `page_data`.

    The page is replaced atomically. The same runs give the same bytes. The first `images` episodes of each game in each
    run have images; None means all episodes.
    """
    path = path.absolute()
    calls, counts = list[tuple[StoredEpisode, bool]](), Counter[tuple[int, str]]()
    for i, run in enumerate(runs):
        for episode in run.run.episodes:
            counts[i, episode.game] += 1
            calls.append((episode, images is None or counts[i, episode.game] <= images))
    packed: list[tuple[ListedEpisode, str]] = []
    call_in_order(workers, packed_episode, calls, packed.append, label="Writing report", ahead=AHEAD)
    listed = iter([episode for episode, _ in packed])
    complete = []
    for run in runs:
        links = {key: Path(os.path.relpath(video, path.parent)) for key, video in run.run.videos().items()}
        videos = {key: quote(link.as_posix()) for key, link in links.items()}
        complete.append(replace(run, listed=[next(listed) for _ in run.run.episodes], videos=videos))
    data = page_data(title, complete, **more)
    blocks = [
        f'<script type="application/zlib" id="episode-{number}">{packed_data}</script>'
        for number, (_, packed_data) in enumerate(packed)
    ]
    write_file(path, app("report", {**data, "images": images}, blocks).encode())


def page_data(
    title: str,
    runs: Sequence[LabelledRun],
    *,
    tables: Sequence[PageTable] = (),
    skills: Mapping[str, Any] | None = None,
    differences: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the data of the page of some runs, without the data of the viewer.

    Args:
        title: Title of the page.
        runs: The runs, with all their `listed` episodes.
        tables: Tables for the overview.
        skills: See `skills_of`.
        differences: For several runs, the difference in score of each run from the first, by game.
    """
    planned = [game for run in runs for game in run.run.config.game_ids]
    games = list(dict.fromkeys([*planned, *(episode.game for run in runs for episode in run.run.episodes)]))
    places = {game: place for place, game in enumerate(games)}
    rows: dict[tuple[int, int], list[dict[str, Any] | None]] = {}
    rewards: dict[tuple[str, int], list[EpisodeRewards]] = {}
    number = 0
    for i, run in enumerate(runs):
        for stored, episode in zip(run.run.episodes, run.listed):
            game, seed = stored.key
            cells = rows.setdefault((places[game], seed), [None] * len(runs))
            cells[i] = {"number": number, "video": run.videos.get(stored.key), **episode.row}
            number += 1
            if episode.rewards is not None:
                rewards.setdefault((game, i), []).append(episode.rewards)
    return {
        "title": title,
        "runs": [run_facts(run) for run in runs],
        "games": [
            game_facts(game, runs, [rewards.get((game, i), []) for i in range(len(runs))])
            | {"differences": (differences or {}).get(game)}
            for game in games
        ],
        "episodes": [
            {"game": game, "seed": seed, "runs": cells, "difference": _difference(cells)}
            for (game, seed), cells in sorted(rows.items())
        ],
        "difference": difference_name(*(run.label for run in runs)) if len(runs) == 2 else None,
        "tables": tables,
        "skills": skills,
        "images": None,
    }


def _difference(cells: Sequence[Mapping[str, Any] | None]) -> float | None:
    scores = [cell["score"] for cell in cells if cell is not None and cell["score"] is not None]
    return scores[0] - scores[1] if len(cells) == len(scores) == 2 else None


def run_facts(run: LabelledRun) -> dict[str, Any]:
    """Return the facts that the page shows about a run, and the numbers of episodes without a result, by status."""
    config, games = run.run.config, run.summary.games
    missing: Counter[str] = Counter()
    for summary in games.values():
        missing.update(summary.unfinished)
    options = {name: value for name, value in config.options.items() if name != "policy"}
    return {
        "label": run.label,
        "policy": config.policy.label,
        "lead": [
            _episodes(config),
            f"at most {config.max_turns:,} turns per episode",
            f"started {config.started[:16].replace('T', ' ')} UTC",
        ],
        "facts": [
            ("policy", config.policy.name),
            ("policy options", _settings(config.policy.options) or "none"),
            *_games(config),
            ("episodes", _episodes(config)),
            ("turns", f"at most {config.max_turns:,} per episode"),
            ("prompts", _settings(asdict(config.prompts))),
            ("reward", _settings(config.reward.model_dump())),
            ("options", _settings(options)),
            ("started", config.started),
            ("versions", ", ".join(f"{name} {version}" for name, version in config.versions.items())),
        ],
        "hasImages": config.prompts.has_images,
        "missing": missing,
        "bias": bias_note(games),
        "control": control_note(config.prompts),
        "stop_reason": run.summary.stop_reason,
    }


def game_facts(game: str, runs: Sequence[LabelledRun], rewards: Sequence[Sequence[EpisodeRewards]]) -> dict[str, Any]:
    """Return the summary and curves of a game in each run; `rewards` has the rewards of the results in each run."""
    summaries = [run.summary.games.get(game) for run in runs]
    words = [
        {} if summary is None else game_rows(run.run.config, game, summary) for run, summary in zip(runs, summaries)
    ]
    names = dict.fromkeys(name for column in words for name in column)
    return {
        "id": game,
        "table": [(name, [column.get(name, "") for column in words]) for name in names],
        "summaries": summaries,
        "curves": [
            curves(run, one_stage=summary is None or len(summary.stages) < 2)
            for run, summary in zip(rewards, summaries)
        ],
    }


def curves(episodes: Sequence[EpisodeRewards], *, one_stage: bool) -> dict[str, Any] | None:
    """Compute the mean curve, its interval from `low` to `high`, and the curves of `single` episodes.

    `low` and `high` are None without an interval. Returns None without episodes.
    """
    if not episodes:
        return None
    curve = mean_curve(episodes, one_stage=one_stage)
    low, high = map(rounded, curve.interval) if curve.interval is not None else (None, None)
    return {
        "turns": curve.turns.tolist(),
        "mean": rounded(curve.mean),
        "low": low,
        "high": high,
        "single": [
            rounded(episode.totals[curve.turns[curve.turns <= len(episode.rewards)]])
            for episode in episodes[:SINGLE_CURVES]
        ],
        "count": len(episodes),
        "stages": not one_stage,
    }


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _settings(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_words(value)}" for name, value in config.items() if value is not None)


def _games(config: RunRecord) -> list[tuple[str, str]]:
    if config.curriculum is None:
        return [(game.id, _settings(game.config)) for game in config.games]
    return [("games", ", ".join(config.game_ids)), ("curriculum", _words(config.curriculum.file))]


def _episodes(config: RunRecord) -> str:
    of = "of each game" if config.curriculum is None else "of the curriculum"
    return f"{config.episodes:,} episodes {of}, seeds {config.seed} to {config.seed + config.episodes - 1}"
