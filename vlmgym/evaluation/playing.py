"""Plays a run into its folder, from the beginning or from where an earlier part of it has come to."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError, VlmgymError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.live_log import open_live_log
from vlmgym.evaluation.progress import LiveProgress
from vlmgym.evaluation.results import Part
from vlmgym.policies import Policy
from vlmgym.records.episode import DifficultyRecord, EpisodeRecord, GameRecord, PolicyRecord, TurnRecord, now, versions
from vlmgym.records.files import LineLog
from vlmgym.records.run import CurriculumRecord, RunRecord, RunSummary, begun_with
from vlmgym.records.run_folder import RunFolder, differences
from vlmgym.records.store import StoredRun, drop_torn_line, open_run
from vlmgym.rollout.event_loop import run_async
from vlmgym.rollout.runner import Hooks, evaluate
from vlmgym.sandbox.core.game import Game
from vlmgym.workers.pool import WorkerPool

MOST_OF_CURRICULUM = 1_000_000
"""Episodes of a run by a curriculum, which are all dealt out to the games before it begins."""

Played = Sequence[Game[Any, Any]] | Curriculum
"""What a run plays: games, or a curriculum."""


def games_of(played: Played) -> Sequence[Game[Any, Any]]:
    """The games that a run plays, of a curriculum those of all stages."""
    return played.games if isinstance(played, Curriculum) else played


def count_of(played: Played, config: EvalConfig) -> int:
    """How many episodes a run has, of all games together."""
    return config.episodes if isinstance(played, Curriculum) else config.episodes * len(played)


def make_run_record(config: EvalConfig, played: Played, policy: Policy) -> RunRecord:
    """What `run.json` says of a run that is begun now."""
    difficulty = None
    if not isinstance(played, Curriculum):
        difficulty = DifficultyRecord.of(config.perception, config.reasoning, played)
    return RunRecord(
        started=now(),
        versions=versions(),
        games=tuple(map(GameRecord.of, games_of(played))),
        difficulty=difficulty,
        curriculum=_curriculum_record(played, config) if isinstance(played, Curriculum) else None,
        policy=PolicyRecord(name=policy.name, options=policy.options.without_operational()),
        reward=config.reward,
        history=config.history,
        history_images=config.history_images,
        max_turns=config.max_turns,
        seed=config.seed,
        episodes=config.episodes,
        options={
            "concurrency": config.concurrency,
            "workers": config.workers,
            "backend": config.backend,
            **dataclasses.asdict(config.budget),
            "policy": policy.options.to_dict(),
        },
    )


def _curriculum_record(curriculum: Curriculum, config: EvalConfig) -> CurriculumRecord | None:
    if curriculum.file is None:
        raise UsageError("a run is played by a curriculum that was read from a file")
    if config.episodes > MOST_OF_CURRICULUM:
        raise UsageError(f"episodes of a curriculum are at most {MOST_OF_CURRICULUM:,}, not {config.episodes:,}")
    entries = (curriculum.entries[curriculum.entry_at(config.seed, index)] for index in range(config.episodes))
    episodes = Counter(entry.stages[0].game.id for entry in entries)
    return CurriculumRecord(file=curriculum.file.model_dump(mode="json", exclude_none=True), episodes=episodes)


@dataclasses.dataclass(frozen=True)
class ResumedRun:
    """A run that is gone on with.

    Attributes:
        run: The run as it was left.
        summary: Its summary, if it had come to its end.
        asked: What `run.json` says once it has gone on.
    """

    run: StoredRun
    summary: RunSummary | None
    asked: RunRecord

    def go_on(self) -> None:
        """Let nothing say any more that the run is over.

        Raises:
            OutputError: The folder cannot be written.
        """
        self.run.folder.reopen()
        self.run.folder.begin(self.asked)


def reopen(folder: RunFolder, asked: RunRecord, console: Console) -> ResumedRun:
    """Read a run to go on with it; nothing of it is changed but a torn last line, which is dropped.

    Args:
        folder: Its folder.
        asked: What is asked for now.
        console: Where it is said what a reader of the records should know.

    Raises:
        UsageError: The folder holds no run, or one with other options.
        OutputError: The folder cannot be written.
    """
    run = open_run(folder)
    if different := differences(run.asked, asked):
        raise UsageError(
            f"{folder.folder} was a run with other options, so it cannot be resumed: {'; '.join(different)}"
        )
    if run.torn:
        drop_torn_line(folder.episodes)
        console.print(f"the last line of {folder.episodes} was not whole, and is dropped", soft_wrap=True)
    if begun := begun_with(run.asked):
        console.print(f"{begun}; each episode's record says what it was played with")
    goes_on = asked.model_copy(update={"started": run.asked.started, "versions": run.asked.versions})
    return ResumedRun(dataclasses.replace(run, folder=folder), folder.read_summary(), goes_on)


def play_run(
    folder: RunFolder,
    played: Played,
    policy: Policy,
    config: EvalConfig,
    earlier: ResumedRun | None,
    workers: WorkerPool,
    console: Console,
    *,
    alone: bool = True,
) -> Part:
    """Play what is missing of a run, each episode on the disk as it ends; none stays in memory.

    Args:
        folder: Where.
        played: The games, or the curriculum.
        policy: Who plays.
        config: The options.
        earlier: The run as it was left, if it was resumed; it is changed when the first episode ends.
        workers: Processes that play.
        console: Where progress is shown.
        alone: Whether this run is all there is, so that a message may say how it goes on by itself.

    Raises:
        VlmgymError: The run failed; of one that is alone the message says where finished episodes are.
    """
    part = Part()
    left = earlier.run if earlier is not None else None
    finished = sum(episode.score is not None for episode in left.episodes) if left is not None else 0
    names = dict.fromkeys(game.id for game in games_of(played))
    if (
        isinstance(played, Curriculum)
        and played.by_success
        and played.at_once < min(config.concurrency, config.episodes)
    ):
        console.print(
            f"at most {played.at_once} episodes are played at once: at_once of the curriculum", soft_wrap=True
        )
    progress = LiveProgress(console, list(names), count_of(played, config) - finished, config.max_turns)
    earlier_episodes = left.read() if left is not None else ()
    live_log = open_live_log(config.tensorboard, config.wandb, folder, earlier_episodes, console)
    folder.output.claim(folder.episodes)
    with live_log, LineLog(folder.episodes) as log, progress:

        def on_turns(turns: Sequence[TurnRecord]) -> None:
            part.turns += len(turns)
            progress.turns(turns)

        def on_episode(episode: EpisodeRecord) -> None:
            nonlocal finished
            if earlier is not None and not log.written:
                earlier.go_on()
            log.write(episode.model_dump_json())
            finished += episode.score is not None
            if episode.status == "error":
                part.errors[episode.end] += 1
            progress.episode(episode)
            live_log.episode(episode)

        def on_stop(reason: str) -> None:
            part.stopped = reason

        try:
            run_async(workers.start())
            began = time.perf_counter()
            evaluate(
                played,
                policy,
                config.episodes,
                max_turns=config.max_turns,
                seed=config.seed,
                concurrency=config.concurrency,
                workers=workers,
                history=config.history,
                history_images=config.history_images,
                reward=config.reward,
                budget=config.budget,
                resume=left.read() if left is not None else (),
                hooks=Hooks(progress.loading, on_turns, on_episode, on_stop),
                collect=False,
            )
            part.seconds = time.perf_counter() - began
        except (VlmgymError, KeyboardInterrupt) as error:
            if alone and not isinstance(error, UsageError):
                where = f"{finished} finished episodes are in {folder.episodes}; --resume {folder.folder} goes on"
                error.args = (f"{str(error) or 'interrupted'}; {where}",)
            raise
    return part
