"""Write the summary, curves and videos of a run.

Unreadable records raise `UsageError`; files that cannot be written raise `OutputError`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from vlmgym.errors import GameError, UsageError
from vlmgym.evaluation.progress import call_in_order
from vlmgym.evaluation.summary import summarise_run
from vlmgym.evaluation.summary_table import difficulty, vlmgym_version
from vlmgym.runs.files import OutputError, replace_file, writing
from vlmgym.runs.record import RunSummary, game_run_document
from vlmgym.runs.run import ScriptFolder
from vlmgym.runs.store import StoredEpisode, StoredRun, game_name
from vlmgym.sandbox.core.episode import game_errors
from vlmgym.workers.pool import ProcessPool


@dataclass
class Session:
    """One session of a run.

    Attributes:
        turns: Number of turns played.
        seconds: Wall-clock time spent playing.
        stop_reason: Why the session stopped early, or None.
        errors: Number of failed episodes by error message.
    """

    turns: int = 0
    seconds: float = 0.0
    stop_reason: str | None = None
    errors: Counter[str] = field(default_factory=Counter)


def session_summary(run: StoredRun, session: Session, before: RunSummary | None = None) -> RunSummary:
    """Summarise a run after a session; `before` is the summary of the earlier ones, whose turns and seconds are added.

    Results are not normalised.
    """
    turns, seconds = session.turns, session.seconds
    if before is not None:
        turns, seconds = turns + round(before.turns_per_second * before.seconds), seconds + before.seconds
    rate = turns / seconds if seconds > 0 else 0.0
    return RunSummary(games=summarise_run(run), stop_reason=session.stop_reason, seconds=seconds, turns_per_second=rate)


def write_curves(run: StoredRun) -> None:
    """Plot the curves of every game with a result."""
    from vlmgym.evaluation.curves import draw_curves

    for game, results in _results(run).items():
        subtitle = ", ".join(filter(None, [difficulty(run.config, game), vlmgym_version(run.config)]))
        png = draw_curves((episode.read() for episode in results), subtitle)
        replace_file(run.folder.curves(game_name(game)), png)


def write_videos(run: StoredRun, count: int, workers: ProcessPool, console: Console) -> None:
    """Encode the missing videos of the first `count` results of each game."""
    wanted = [
        (run.folder.video(game_name(game), episode.index), episode)
        for game, results in _results(run).items()
        for episode in results[:count]
    ]
    missing = [call for call in wanted if not call[0].exists()]
    if not missing:
        return
    with writing(run.folder.videos):
        run.folder.videos.mkdir(exist_ok=True)

    def report(error: str | None) -> None:
        if error is not None:
            console.print(f"no video: {error}", soft_wrap=True)

    call_in_order(workers, _write_video, missing, report, label="Encoding videos ...", console=console)


def _write_video(path: Path, episode: StoredEpisode) -> str | None:
    """Write a video; return the error of a game that cannot draw it."""
    from vlmgym.evaluation.video import write_stored_video

    try:
        with game_errors(episode.game, episode.seed, None, UsageError, OutputError):
            write_stored_video(path, episode)
    except GameError as error:
        return str(error)
    return None


def copy_results(run: StoredRun, script: ScriptFolder, summary: RunSummary) -> list[Path]:
    """Copy the results of an evaluation script's game beside the script, and return their paths."""
    (game,) = run.config.game_ids
    document = game_run_document(summary.games[game], (episode.text() for episode in run.episodes))
    return script.copy_results(document, run.folder.curves(game_name(game)), run.videos().values())


def _results(run: StoredRun) -> dict[str, list[StoredEpisode]]:
    """Return the episodes with a score, by game, ordered by seed."""
    results: dict[str, list[StoredEpisode]] = {}
    for episode in run.episodes:
        if episode.score is not None:
            results.setdefault(episode.game, []).append(episode)
    return results
