"""What is made of a run's records when it is over: summary, curves, videos."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress

from vlmgym.evaluation.files import replace_file, writing
from vlmgym.evaluation.progress import COLUMNS
from vlmgym.evaluation.record import EpisodeRecord, GameRunRecord, RunRecord, RunSummary
from vlmgym.evaluation.run_folder import RunFolder
from vlmgym.evaluation.runner import run_async
from vlmgym.evaluation.summary import summarise
from vlmgym.evaluation.workers import Workers
from vlmgym.sandbox.game import Game

Games = Sequence[Game[Any, Any]]


@dataclass
class Part:
    """What was played of a run at a time: all of it, or what was left when it was resumed.

    Attributes:
        turns: Turns played.
        seconds: Wall time of playing.
        stopped: Why the run stopped early, or None.
    """

    turns: int = 0
    seconds: float = 0.0
    stopped: str | None = None


def write_summary(
    folder: RunFolder,
    asked: RunRecord,
    episodes: Sequence[EpisodeRecord],
    part: Part,
    before: RunSummary | None = None,
) -> RunSummary:
    """Write `summary.json` and the documents of single games.

    Args:
        folder: Where.
        asked: What the run was asked for.
        episodes: The latest record of each episode.
        part: What was played now.
        before: The summary that the run had before it was resumed, if it had one.

    Raises:
        OutputError: A file cannot be written.
    """
    summaries = {game.id: summarise(_of(game.id, episodes), asked.episodes) for game in asked.games}
    for game in asked.games:
        if (path := folder.record(game.id.rpartition("-v")[0])) is not None:
            document = GameRunRecord(summary=summaries[game.id], episodes=_of(game.id, episodes)).document()
            replace_file(path, document.encode())
    turns, seconds = part.turns, part.seconds
    if before is not None:
        turns, seconds = turns + round(before.turns_per_second * before.seconds), seconds + before.seconds
    rate = turns / seconds if seconds > 0 else 0.0
    summary = RunSummary(games=summaries, stopped=part.stopped, seconds=seconds, turns_per_second=rate)
    replace_file(folder.summary, (summary.model_dump_json(indent=1) + "\n").encode())
    return summary


def draw_results(
    folder: RunFolder,
    games: Games,
    episodes: Sequence[EpisodeRecord],
    fps: int | None,
    workers: Workers,
    console: Console,
) -> None:
    """Draw the curves of every game, and a video of every result that has none yet.

    Args:
        folder: Where.
        games: The games of the run.
        episodes: The latest record of each episode.
        fps: Turns a second in the videos; None: no videos.
        workers: Processes that draw.
        console: Where progress is shown.

    Raises:
        OutputError: A file cannot be written.
    """
    # Worker processes import the user's script, and so this module, too: they need no matplotlib.
    from vlmgym.evaluation.curves import draw_curves
    from vlmgym.evaluation.video import write_video

    videos = []
    for game in games:
        results = [episode for episode in _of(game.id, episodes) if episode.score is not None]
        if not results:
            continue
        replace_file(folder.curves(game.name), draw_curves(results))
        for episode in results if fps is not None else ():
            path = folder.video(game.name, episode.index)
            if not path.exists():
                videos.append((path, game, episode))
    if fps is None or not videos:
        return
    for path, _, _ in videos[:1]:
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)

    async def write_videos(bar: Progress) -> None:
        calls = [workers.call(write_video, path, game, episode, fps) for path, game, episode in videos]
        for call in asyncio.as_completed(calls):
            await call
            bar.advance(task)

    with Progress(*COLUMNS, console=console) as bar:
        task = bar.add_task("videos", total=len(videos), facts="")
        run_async(write_videos(bar))


def _of(game: str, episodes: Sequence[EpisodeRecord]) -> tuple[EpisodeRecord, ...]:
    return tuple(episode for episode in episodes if episode.game.id == game)
