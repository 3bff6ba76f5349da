"""What is made of a run's records when it is over: summary, curves, videos."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress

from vlmgym.evaluation.progress import COLUMNS
from vlmgym.evaluation.summary import summarize
from vlmgym.evaluation.table import difficulty, vlmgym_version
from vlmgym.records.files import writing
from vlmgym.records.run import RunSummary, game_run_document
from vlmgym.records.store import StoredEpisode, StoredRun, game_name
from vlmgym.rollout.event_loop import run_all, run_async
from vlmgym.workers.pool import ProcessPool


@dataclass
class Part:
    """What was played of a run at a time: all of it, or what was left when it was resumed.

    Attributes:
        turns: Turns played.
        seconds: Wall time of playing.
        stopped: Why the run stopped early, or None.
        errors: Why episodes ended as errors, and how many did.
    """

    turns: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    errors: Counter[str] = field(default_factory=Counter)


def write_summary(run: StoredRun, part: Part, before: RunSummary | None = None) -> RunSummary:
    """Write `summary.json` and the documents of single games.

    Args:
        run: The run as its folder has it.
        part: What was played now.
        before: The summary that the run had before it was resumed, if it had one.

    Raises:
        UsageError: A record cannot be read.
        OutputError: A file cannot be written.
    """
    summaries = summarize(run)
    for game in run.asked.game_ids:
        if (path := run.folder.record(game_name(game))) is not None:
            lines = (episode.text() for episode in run.episodes if episode.game == game)
            run.folder.write(path, game_run_document(summaries[game], lines))
    turns, seconds = part.turns, part.seconds
    if before is not None:
        turns, seconds = turns + round(before.turns_per_second * before.seconds), seconds + before.seconds
    rate = turns / seconds if seconds > 0 else 0.0
    summary = RunSummary(games=summaries, stopped=part.stopped, seconds=seconds, turns_per_second=rate)
    run.folder.write(run.folder.summary, (summary.model_dump_json(indent=1) + "\n").encode())
    return summary


def write_curves(run: StoredRun) -> None:
    """Draw the curves of every game that has a result.

    Raises:
        UsageError: A record cannot be read.
        OutputError: A file cannot be written.
    """
    # Worker processes import the user's script, and so this module, too: they need no matplotlib.
    from vlmgym.evaluation.curves import draw_curves

    for game, results in _results(run).items():
        subtitle = ", ".join(filter(None, [difficulty(run.asked, game), vlmgym_version(run.asked)]))
        png = draw_curves((episode.read() for episode in results), subtitle)
        run.folder.write(run.folder.curves(game_name(game)), png)


def write_videos(run: StoredRun, count: int, fps: int, workers: ProcessPool, console: Console) -> None:
    """Encode the videos that are missing.

    Args:
        run: The run as its folder has it.
        count: Number of results of each game that have a video, the first ones.
        fps: Turns a second.
        workers: Processes that encode.
        console: Where progress is shown.

    Raises:
        UsageError: A record cannot be read.
        OutputError: A file cannot be written.
    """
    from vlmgym.evaluation.video import write_stored_video

    wanted = [
        (run.folder.video(game_name(game), episode.index), episode)
        for game, results in _results(run).items()
        for episode in results[:count]
    ]
    missing = [(path, episode) for path, episode in wanted if not path.exists()]
    if not missing:
        return
    run.folder.owner(missing[0][0]).claim(*(path for path, _ in missing))
    folder = missing[0][0].parent
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)

    waiting = iter(missing)

    async def encode(bar: Progress) -> None:
        for path, episode in waiting:
            await workers.call(write_stored_video, path, episode, fps)
            bar.advance(task)

    with Progress(*COLUMNS, console=console) as bar:
        task = bar.add_task("Encoding videos ...", total=len(missing))
        run_async(run_all(encode(bar) for _ in range(max(1, 2 * workers.count))))


def _results(run: StoredRun) -> dict[str, list[StoredEpisode]]:
    """The episodes of each game that have a score, in the order of their seeds."""
    results: dict[str, list[StoredEpisode]] = {}
    for episode in run.episodes:
        if episode.score is not None:
            results.setdefault(episode.game, []).append(episode)
    return results
