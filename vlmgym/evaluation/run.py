"""Play or resume a run, and write its records to the run folder."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError, VlmgymError
from vlmgym.evaluation.artifacts import Session
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.live_log import open_live_log
from vlmgym.evaluation.progress import LiveProgress
from vlmgym.policies import Policy
from vlmgym.rollout.event_loop import run_async
from vlmgym.rollout.runner import Games, Hooks, all_games, play_episodes, total_episodes
from vlmgym.runs.files import LineLog, json_bytes, replace_file, writing
from vlmgym.runs.record import (
    CurriculumRecord,
    DifficultyRecord,
    EpisodeRecord,
    GameRecord,
    PolicyRecord,
    RunRecord,
    RunSummary,
    TurnRecord,
    differences,
    now,
    version_changes,
    versions,
)
from vlmgym.runs.run import RunFolder
from vlmgym.runs.store import StoredRun, drop_torn_line, open_run
from vlmgym.workers.pool import WorkerPool

MAX_CURRICULUM_EPISODES = 1_000_000
"""Maximum number of episodes in a curriculum run; every episode is assigned to a game before the run starts."""


def make_run_record(config: EvalConfig, games: Games, policy: Policy, suite: str | None = None) -> RunRecord:
    """Make the `run.json` of a run that starts now."""
    curriculum = difficulty = None
    if isinstance(games, Curriculum):
        curriculum = _curriculum_record(games, config)
    else:
        difficulty = DifficultyRecord.of(config.perception, config.reasoning, games)
    return RunRecord(
        started=now(),
        versions=versions(),
        games=tuple(map(GameRecord.of, all_games(games))),
        difficulty=difficulty,
        suite=suite,
        curriculum=curriculum,
        policy=PolicyRecord(name=policy.name, options=policy.options.without_operational()),
        reward=config.reward,
        prompts=config.prompts,
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


def _curriculum_record(curriculum: Curriculum, config: EvalConfig) -> CurriculumRecord:
    if (file := curriculum.to_data()) is None:
        raise UsageError("the curriculum of a run must be read from a file")
    if config.episodes > MAX_CURRICULUM_EPISODES:
        raise UsageError(
            f"a curriculum has at most {MAX_CURRICULUM_EPISODES:,} episodes per run, got {config.episodes:,}"
        )
    entries = (curriculum.entries[curriculum.entry_at(config.seed, index)] for index in range(config.episodes))
    episodes = Counter(entry.stages[0].game.id for entry in entries)
    return CurriculumRecord(file=file, episodes=episodes)


@dataclasses.dataclass(frozen=True)
class EarlierSessions:
    """A run to resume.

    Attributes:
        run: The run as saved by its earlier sessions.
        summary: `summary.json` of the run; None if missing, for example after a killed session.
        config: New contents of `run.json`.
    """

    run: StoredRun
    summary: RunSummary | None
    config: RunRecord

    def reopen(self) -> None:
        """Mark the run as unfinished: remove the old summary, and write the new `run.json`."""
        folder = self.run.folder
        with writing(folder.folder):
            folder.summary.unlink(missing_ok=True)
        replace_file(folder.run, json_bytes(self.config))


def resume_run(folder: RunFolder, config: RunRecord, console: Console) -> EarlierSessions:
    """Read the run to resume; raise `UsageError` if options that affect episodes differ from `config`.

    Changes no files, except that a torn last line is dropped from the records.
    """
    run = open_run(folder)
    if different := differences(run.config, config):
        raise UsageError(f"cannot resume {folder.folder} with other options: {'; '.join(different)}")
    if run.torn:
        drop_torn_line(folder.episodes)
        console.print(f"dropped the incomplete last line of {folder.episodes}", soft_wrap=True)
    if changed := version_changes(run.config):
        console.print(f"{changed}; the record of each episode states the versions it was played with")
    config = config.model_copy(update={"started": run.config.started, "versions": run.config.versions})
    return EarlierSessions(dataclasses.replace(run, folder=folder), folder.read_summary(), config)


def play_run(
    folder: RunFolder,
    games: Games,
    policy: Policy,
    config: EvalConfig,
    earlier: EarlierSessions | None,
    workers: WorkerPool,
    console: Console,
    *,
    standalone: bool = True,
) -> Session:
    """Play the episodes of a run that have no result, and return the session.

    Records are written as episodes end, and not kept in memory. When a run is resumed, the old `summary.json` is
    removed and `run.json` replaced only after the first episode ends. Without `standalone`, error messages do not
    explain how to resume.
    """
    session = Session()
    episodes = earlier.run.episodes if earlier is not None else ()
    finished = sum(episode.score is not None for episode in episodes)
    if (
        isinstance(games, Curriculum)
        and games.by_success
        and games.max_concurrency < min(config.concurrency, config.episodes)
    ):
        console.print(
            f"concurrency is limited to {games.max_concurrency} by max_concurrency of the curriculum", soft_wrap=True
        )
    names = dict.fromkeys(game.id for game in all_games(games))
    remaining = total_episodes(games, config) - finished
    progress = LiveProgress(console, list(names), remaining, config.max_turns, policy)
    records = (episode.read() for episode in episodes)
    live_log = open_live_log(config.tensorboard, config.wandb, folder, records, console)
    with live_log, LineLog(folder.episodes) as log, progress:

        def on_turns(turns: Sequence[TurnRecord]) -> None:
            session.turns += len(turns)
            progress.turns(turns)

        def on_episode(episode: EpisodeRecord) -> None:
            nonlocal finished
            if earlier is not None and not log.written:
                earlier.reopen()
            log.write(episode.model_dump_json())
            finished += episode.score is not None
            if episode.status == "error":
                session.errors[episode.end_reason] += 1
            progress.episode(episode)
            live_log.episode(episode)

        def on_stop(reason: str) -> None:
            session.stop_reason = reason

        try:
            run_async(workers.start())
            began = time.perf_counter()
            play_episodes(
                games,
                policy,
                config,
                workers,
                resume=(episode.read() for episode in episodes),
                hooks=Hooks(progress.loading, on_turns, on_episode, on_stop),
                collect=False,
            )
            session.seconds = time.perf_counter() - began
            if not (episodes or session.turns):
                reasons = [f"{reason} ({count} episodes)" for reason, count in session.errors.most_common(1)]
                raise VlmgymError("; ".join(["nothing was played", *reasons]))
        except (VlmgymError, KeyboardInterrupt) as error:
            message = str(error) or "interrupted"
            if not (episodes or session.turns):
                folder.episodes.unlink(missing_ok=True)  # a corrected command may use the folder
            elif standalone and not isinstance(error, UsageError):
                message += f"; {finished} finished episodes are in {folder.episodes}"
                message += f"; continue with --resume {folder.folder}"
            error.args = (message,)
            raise
    return session
