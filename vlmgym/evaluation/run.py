"""Evaluate a policy: play episodes, and write them to a run folder with their summary, curves and videos."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError, VlmgymError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.live_log import LiveLog
from vlmgym.evaluation.progress import LiveProgress, call_in_order
from vlmgym.evaluation.summary import summarise_run
from vlmgym.evaluation.tables import difficulty, vlmgym_version
from vlmgym.policies import Policy, PolicySpec, make_policy
from vlmgym.rollout.runner import (
    Games,
    Hooks,
    all_games,
    check_run,
    needs_workers,
    play_episodes,
    run_async,
    total_episodes,
)
from vlmgym.rollout.settings import RunSettings
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
    game_run_document,
    now,
    version_changes,
    versions,
)
from vlmgym.runs.run import RunFolder, ScriptFolder
from vlmgym.runs.store import StoredEpisode, StoredRun, drop_torn_line, game_name, open_run, read_texts
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.registry import make_games
from vlmgym.terminal import make_console
from vlmgym.workers.pool import Backend, ProcessPool, RayPool, check_num_workers, num_workers_for
from vlmgym.workers.process import WorkerPool


def evaluate(
    games: Game[Any, Any] | str | Sequence[Game[Any, Any] | str] | Curriculum,
    policy: PolicySpec,
    episodes: int = 10,
    *,
    workers: int | WorkerPool | None = None,
    backend: Backend = "process",
    resume: Iterable[EpisodeRecord] = (),
    hooks: Hooks = Hooks(),  # noqa: B008 - frozen
    collect: bool = True,
    **settings: Any,
) -> list[EpisodeRecord]:
    """Play episodes and return their records, ordered by game and seed, or by index for a curriculum.

    Args:
        games: A game or its id, several of them, or a curriculum.
        policy: A policy, its name, or a function `(images_batch, prompt_batch) -> responses`.
        episodes: Episodes per game, or in total for a curriculum; their seeds are `seed`, `seed + 1`, ...
        workers: Number of worker processes, at most one per episode, or a pool; 0 plays in this process.
            Default: one per core, or 0 if a model plays games whose turns take less than `CHEAP_TURN`.
        backend: `process` for processes on this machine, `ray` for a Ray cluster; see `vlmgym.workers.pool.RayPool`.
        resume: Records from an earlier session, consumed one by one. Episodes with a result are not played again;
            others continue after their last turn.
        hooks: Callbacks.
        collect: Keep the records in memory and return them. If False, only `hooks` receive the records.
        settings: Further fields of `RunSettings`: `max_turns`, `seed` (of the first episode), `concurrency`,
            `observation`, `chat`, `history`, `history_images`, `reward` and `budget`. Tokens and costs in `resume`
            count towards the budget.

    Returns:
        The latest record of each episode, including episodes of `resume`; empty if not `collect`. If the run stops
        early (budget, model unreachable), episodes may be missing, and interrupted episodes have no score.

    Raises:
        UsageError: An argument is invalid.
        PolicyError: The policy failed; `on_episode` has been called for all episodes that ended before that.
        WorkerError: A worker process died.
    """
    check_num_workers("workers", None if isinstance(workers, WorkerPool) else workers, backend)
    run_settings = RunSettings(episodes=episodes, **settings)
    played: Games = games if isinstance(games, Curriculum) else make_games(games)
    policy = make_policy(policy)
    check_run(policy, played, run_settings)
    with (
        nullcontext(workers)
        if isinstance(workers, WorkerPool)
        else _players(backend, workers, policy, played, run_settings)
    ) as pool:
        return play_episodes(played, policy, run_settings, pool, resume=resume, hooks=hooks, collect=collect)


def _players(backend: Backend, workers: int | None, policy: Policy, games: Games, settings: RunSettings) -> WorkerPool:
    """Open the pool that plays the episodes; by default without worker processes where they do not pay."""
    episodes = total_episodes(games, settings)
    if backend == "ray":
        return RayPool(workers, episodes)
    if workers is None and not needs_workers(policy, games, settings):
        workers = 0
    return ProcessPool(num_workers_for(episodes, workers))


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


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation, while its folder is still reserved.

    Attributes:
        run: The run as stored.
        summary: Summary of the run, without normalised results.
        session: This session of the run.
    """

    run: StoredRun
    summary: RunSummary
    session: Session
    _players: WorkerPool
    _num_workers: int
    _pools: ExitStack

    @cached_property
    def workers(self) -> ProcessPool:
        """Worker processes of this machine, for curves, videos and pages."""
        if isinstance(self._players, ProcessPool) and self._players.count >= self._num_workers:
            return self._players
        return self._pools.enter_context(ProcessPool(self._num_workers))


@contextmanager
def evaluate_run(
    folder: RunFolder,
    games: Games,
    policy: Policy,
    config: EvalConfig,
    console: Console,
    *,
    suite: str | None = None,
    standalone: bool = True,
) -> Iterator[Evaluation]:
    """Play a run, or resume it with `config.resume`, and write its records, as a context that yields the results.

    If nothing is played, the folder stays as it was.

    Args:
        folder: Folder of the run.
        games: Games or curriculum.
        policy: The policy.
        config: Settings of the run.
        console: Console for progress and notes.
        suite: Name of the suite, if any.
        standalone: False inside of a program such as a trainer: a run in the folder is replaced, and errors do not
            explain how to resume.

    Raises:
        UsageError: The options are invalid, or the folder has other files, or another run.
        VlmgymError: The run failed; finished episodes are in the folder.
    """
    check_run(policy, games, config)
    record = _run_record(config, games, policy, suite)
    resumed = config.resume is not None
    with folder.reserved() if resumed else folder.new_run(record, replace=not standalone), ExitStack() as pools:
        earlier, before = None, folder.read_summary()
        if resumed:
            earlier, record = _resume(folder, record, console)
        players = pools.enter_context(_players(config.backend, config.workers, policy, games, config))
        session = _play(folder, games, policy, config, record, earlier, players, console, standalone=standalone)
        local = None if config.backend == "ray" else config.workers  # Ray plays, but results are written locally
        run = open_run(folder)
        summary = _summarise(run, session, before)
        folder.write_summary(summary)
        num_workers = num_workers_for(total_episodes(games, config), local)
        try:
            yield Evaluation(run, summary, session, players, num_workers, pools)
        except KeyboardInterrupt as error:
            if standalone:
                error.args = (f"{str(error) or 'interrupted'}; write what is missing with --resume {folder.folder}",)
            raise


def _run_record(config: EvalConfig, games: Games, policy: Policy, suite: str | None) -> RunRecord:
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
    entries = (curriculum.entries[curriculum.entry_at(config.seed, index)] for index in range(config.episodes))
    episodes = Counter(entry.stages[0].game.id for entry in entries)
    return CurriculumRecord(file=file, episodes=episodes)


def _resume(folder: RunFolder, config: RunRecord, console: Console) -> tuple[StoredRun, RunRecord]:
    """Read the run to resume, and return it with its new `run.json`; a torn last line is dropped from the records.

    Raises:
        UsageError: Options that affect episodes differ from `config`.
    """
    run = open_run(folder)
    if different := differences(run.config, config):
        raise UsageError(f"cannot resume {folder.folder} with other options: {'; '.join(different)}")
    if run.torn:
        drop_torn_line(folder.episodes)
        console.print(f"dropped the incomplete last line of {folder.episodes}", soft_wrap=True)
    if changed := version_changes(run.config):
        console.print(f"{changed}; the record of each episode states the versions it was played with")
    return run, config.model_copy(update={"started": run.config.started, "versions": run.config.versions})


def _play(
    folder: RunFolder,
    games: Games,
    policy: Policy,
    config: EvalConfig,
    record: RunRecord,
    earlier: StoredRun | None,
    workers: WorkerPool,
    console: Console,
    *,
    standalone: bool,
) -> Session:
    """Play the episodes of a run that have no result, and return the session.

    Episodes are written as they end, and not kept in memory. When a run is resumed, the old `summary.json` is removed
    and `run.json` replaced by `record` only after the first episode ends. Without `standalone`, error messages do not
    explain how to resume.
    """
    session = Session()
    episodes = earlier.episodes if earlier is not None else ()
    finished = sum(episode.score is not None for episode in episodes)
    names = dict.fromkeys(game.id for game in all_games(games))
    remaining = total_episodes(games, config) - finished
    progress = LiveProgress(console, list(names), remaining, config.max_turns, policy)
    live_log = LiveLog(config, folder, (episode.read() for episode in episodes), console)
    with live_log, LineLog(folder.episodes) as log, progress:

        def on_turns(turns: Sequence[TurnRecord]) -> None:
            session.turns += len(turns)
            progress.turns(turns)

        def on_episode(episode: EpisodeRecord) -> None:
            nonlocal finished
            if earlier is not None and not log.written:
                with writing(folder.summary):
                    folder.summary.unlink(missing_ok=True)
                replace_file(folder.run, json_bytes(record))
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


def _summarise(run: StoredRun, session: Session, before: RunSummary | None) -> RunSummary:
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
    from vlmgym.evaluation.curves import draw_curves  # imports matplotlib

    for game, results in _results(run).items():
        subtitle = ", ".join(filter(None, [difficulty(run.config, game), vlmgym_version(run.config)]))
        png = draw_curves((episode.read() for episode in results), subtitle)
        replace_file(run.folder.curves(game_name(game)), png)


def write_videos(run: StoredRun, count: int, workers: ProcessPool) -> None:
    """Encode the missing videos of the first `count` results of each game."""
    wanted = [
        (run.folder.video(game_name(game), episode.index), episode)
        for game, results in _results(run).items()
        for episode in results[:count]
    ]
    missing = [call for call in wanted if not call[0].exists()]
    if not missing:
        return
    from vlmgym.evaluation.video import write_stored_video  # imports imageio

    with writing(run.folder.videos):
        run.folder.videos.mkdir(exist_ok=True)

    def report(error: str | None) -> None:
        if error is not None:
            make_console(stderr=True).print(f"no video: {error}", soft_wrap=True)

    call_in_order(workers, write_stored_video, missing, report, label="Encoding videos ...")


def copy_results(run: StoredRun, script: ScriptFolder, summary: RunSummary) -> list[Path]:
    """Copy the results of an evaluation script's game beside the script, and return their paths."""
    (game,) = run.config.game_ids
    document = game_run_document(summary.games[game], read_texts(run.episodes))
    return script.copy_results(document, run.folder.curves(game_name(game)), run.videos().values())


def _results(run: StoredRun) -> dict[str, list[StoredEpisode]]:
    """Return the episodes with a score, by game, ordered by seed."""
    results: dict[str, list[StoredEpisode]] = {}
    for episode in run.episodes:
        if episode.score is not None:
            results.setdefault(episode.game, []).append(episode)
    return results
