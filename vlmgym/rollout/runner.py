"""Play many episodes concurrently: games and state policies run in worker processes, model policies in this one."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from vlmgym.curriculum import Curriculum
from vlmgym.errors import EpisodeError, InfrastructureError, UsageError, VlmgymError
from vlmgym.policies import ModelPolicy, Policy, StatePolicy
from vlmgym.policies.base import Reply
from vlmgym.rollout.schedule import CurriculumSchedule, FixedSchedule, Job
from vlmgym.rollout.settings import Budget, RunSettings, Usage
from vlmgym.rollout.turn import (
    EpisodeState,
    GameSetup,
    LiveEpisode,
    episode_record,
    play_reply,
    play_turns,
    resume_episode,
)
from vlmgym.runs.record import EpisodeRecord, PolicyRecord, Status, TurnRecord, now
from vlmgym.sandbox.core.data_task import DataTask
from vlmgym.sandbox.core.game import Game
from vlmgym.terminal import defer_interrupts
from vlmgym.workers.process import WorkerPool

Games = Sequence[Game[Any, Any]] | Curriculum
"""The games of a run, or its curriculum."""

T = TypeVar("T")

CHEAP_TURN = 2e-3
"""CPU seconds that a turn of a game may take in this process, by default. One process plays 500 such turns per second,
more than most model servers answer, while sending a turn to a worker and back costs half a millisecond."""
SAMPLE_TURNS = 5
"""Turns that are played to measure a game."""

TURNS_PER_CALL = 10
"""Turns that a worker plays with a `StatePolicy` before it reports progress."""

MAX_CONSECUTIVE_ERRORS = 10
"""Number of episodes that end with an `InfrastructureError` in a row, without a response in between, after which the
run stops."""

ALLOCATIONS = 50_000
"""Allocations between two garbage collections; Python's default is 700 to 2,000, depending on the version."""


@dataclass(frozen=True)
class Hooks:
    """Callbacks of a run, called in the thread of its event loop.

    Attributes:
        on_loading: Called before the run with the name of what the policy loads, and with None when the policy is
            ready.
        on_turns: Called with newly played turns; replayed turns of a resumed episode are not included.
        on_episode: Called with each record as its episode ends, including those without a result (stopped, error).
        on_stop: Called with the reason when the run stops early.
    """

    on_loading: Callable[[str | None], None] = lambda _: None
    on_turns: Callable[[Sequence[TurnRecord]], None] = lambda _: None
    on_episode: Callable[[EpisodeRecord], None] = lambda _: None
    on_stop: Callable[[str], None] = lambda _: None


def play_episodes(
    games: Games,
    policy: Policy,
    settings: RunSettings,
    workers: WorkerPool,
    *,
    resume: Iterable[EpisodeRecord],
    hooks: Hooks,
    collect: bool,
) -> list[EpisodeRecord]:
    """Play episodes with arguments that have been checked; see `vlmgym.evaluation.evaluate`."""
    transform = policy.transform if isinstance(policy, ModelPolicy) else None

    def setup(game: Game[Any, Any]) -> GameSetup:
        return GameSetup(game, settings.episode, transform)

    schedule: FixedSchedule
    places = dict[str, int]()
    if isinstance(games, Curriculum):
        schedule = CurriculumSchedule(games, setup, settings.seed, settings.episodes)
    else:
        schedule = FixedSchedule([*map(setup, games)], settings.seed, settings.episodes)
        places = {game.id: place for place, game in enumerate(games)}
    usage = Usage(settings.budget)
    collected: dict[tuple[str, int], EpisodeRecord] = {}
    for record in resume:
        for turn in record.turns:
            usage.add(turn)
        if schedule.resume(record) and collect:
            collected[record.key] = record

    def on_episode(record: EpisodeRecord) -> None:
        if collect:
            collected[record.key] = record
        hooks.on_episode(record)

    runner = _Runner(schedule, policy, workers, settings.concurrency, usage, replace(hooks, on_episode=on_episode))
    with infrequent_gc():
        run_async(runner.run())
    return sorted(collected.values(), key=lambda record: (places.get(record.game.id, 0), record.seed))


def all_games(games: Games) -> Sequence[Game[Any, Any]]:
    """Return the games of a run, including all stages of a curriculum."""
    return games.games if isinstance(games, Curriculum) else games


def total_episodes(games: Games, settings: RunSettings) -> int:
    """Return the total number of episodes of a run."""
    return settings.episodes * (1 if isinstance(games, Curriculum) else len(games))


def check_run(policy: Policy, games: Games, settings: RunSettings) -> None:
    """Raise `UsageError` unless policy and games support the settings."""
    if not isinstance(games, Curriculum) and len({game.id for game in games}) < len(games):
        raise UsageError("a game is listed twice, or two games have the same id")
    for game in all_games(games):
        policy.check(game)
        settings.check(game)
        if isinstance(policy, ModelPolicy) and not policy.supports_prompts(settings.of(game.history)):
            raise UsageError(
                f"{policy.name} shows only the image of the current turn: remove --observation, --images and --chat, "
                "and set --history-images 0"
            )
    if settings.budget != Budget() and not policy.counts_tokens:
        raise UsageError(f"{policy.name} does not count tokens: remove prices and budgets")


def needs_workers(policy: Policy, games: Games, settings: RunSettings) -> bool:
    """Return whether episodes are played faster by worker processes than in this process, next to a model's requests.

    Plays a few legal moves of each game to measure how long its turns take, rendering and encoding included.
    """
    if not isinstance(policy, ModelPolicy) or policy.transform is None:
        return True
    for game in all_games(games):
        if isinstance(game, DataTask):
            return True  # reading rows and files blocks
        setup = GameSetup(game, settings.episode, policy.transform)
        try:
            if _seconds_per_turn(setup, settings.seed) > CHEAP_TURN:
                return True
        except VlmgymError:
            return True  # the run reports it
    return False


def _seconds_per_turn(setup: GameSetup, seed: int) -> float:
    """Return the CPU seconds of a turn in the second of two equal episodes; the first fills the caches."""
    for _ in range(2):
        began = time.thread_time()
        live = LiveEpisode(setup, seed)
        while not live.done and len(live.turns) < SAMPLE_TURNS:
            with live.episode.game_errors():
                actions = setup.game.legal_actions(live.episode.state)
                answer = setup.game.answer.format(actions[0]) if actions else ""
            live.respond(Reply(f"<answer>{answer}</answer>"))
    return (time.thread_time() - began) / max(1, len(live.turns))


@dataclass
class _Running:
    """An episode that is being played."""

    job: Job
    turns: list[TurnRecord]
    state: EpisodeState | None = None
    started: str = field(default_factory=now)


class _Runner:
    def __init__(
        self, schedule: FixedSchedule, policy: Policy, workers: WorkerPool, concurrency: int, usage: Usage, hooks: Hooks
    ) -> None:
        self.schedule, self.policy, self.workers, self.usage, self.hooks = schedule, policy, workers, usage, hooks
        limit = policy.max_concurrency if isinstance(policy, ModelPolicy) else None
        self.concurrency = min(concurrency, limit or concurrency)
        self.running: dict[tuple[str, int], _Running] = {}
        self.stopped: str | None = None
        self.consecutive_errors = 0

    async def run(self) -> None:
        remaining = self.schedule.remaining

        async def play_next() -> None:
            while not self._should_stop() and (job := await self.schedule.next()) is not None:
                await self._play(job)

        if isinstance(self.policy, ModelPolicy) and remaining:
            self.hooks.on_loading(self.policy.loading)
            await self.policy.begin_run()
            self.hooks.on_loading(None)
        try:
            await run_all(play_next() for _ in range(min(self.concurrency, remaining)))
            if self.schedule.blocked is not None and self.stopped is None:
                self._stop(self.schedule.blocked)
        finally:
            try:
                for running in list(self.running.values()):  # Ctrl-C or a failed policy: keep the turns
                    if running.turns:
                        self._end(running, ("stopped", "the run was interrupted"))
            finally:
                if isinstance(self.policy, ModelPolicy) and remaining:
                    await self.policy.end_run()

    async def _play(self, job: Job) -> None:
        running = _Running(job, [] if job.earlier_record is None else [*job.earlier_record.turns])
        try:
            running.turns, state = await self.workers.call(resume_episode, job.setup, job.seed, running.turns)
            running.state, self.running[job.key] = state, running
            self._report_running()
            while state.observation.end is None:
                if (reason := self._should_stop()) is not None:
                    return self._end(running, ("stopped", reason))
                state = running.state = await self._advance(running, state)
        except EpisodeError as error:
            if isinstance(error, InfrastructureError):
                self._count_error(str(error))
            return self._end(running, ("error", str(error)))
        return self._end(running)

    async def _advance(self, running: _Running, state: EpisodeState) -> EpisodeState:
        setup = running.job.setup
        if isinstance(self.policy, StatePolicy):
            turns, state = await self.workers.call(play_turns, setup, state, self.policy, TURNS_PER_CALL)
        elif isinstance(self.policy, ModelPolicy):
            began = time.perf_counter()
            reply = await self.policy.reply(state.observation.images, state.prompt(setup.game))
            if reply.latency is None:
                reply = replace(reply, latency=time.perf_counter() - began)
            self.consecutive_errors = 0
            cost = self.usage.price(reply, self.policy.name)
            images = state.observation.images
            turns, state = await self.workers.call(play_reply, setup, state.to_play(), reply, cost)
            state = state.with_past_images(setup.prompts, images)
            for turn in turns:
                self.usage.add(turn)
        running.turns += turns
        self.hooks.on_turns(turns)
        return state

    def _end(self, running: _Running, failed: tuple[Status, str] | None = None) -> None:
        """Record an episode that will not continue in this session."""
        job = running.job
        if running.state is None and job.earlier_record is not None and failed is not None:
            status, reason = failed
            update = {"attempt": job.earlier_record.attempt + 1, "status": status, "end_reason": reason}
            return self._report(job, job.earlier_record.model_copy(update=update))
        record = episode_record(
            job.setup,
            running.state,
            running.turns,
            policy=PolicyRecord(name=self.policy.name, options=self.policy.options.without_operational()),
            seed=job.seed,
            index=job.index,
            started=running.started,
            attempt=1 if job.earlier_record is None else job.earlier_record.attempt + 1,
            stage=job.stage,
            failed=failed,
        )
        return self._report(job, record)

    def _report(self, job: Job, record: EpisodeRecord) -> None:
        self.running.pop(job.key, None)
        self.hooks.on_episode(record)
        self.schedule.finish(record)
        self._report_running()

    def _report_running(self) -> None:
        if isinstance(self.policy, ModelPolicy):
            self.policy.set_running_episodes(len(self.running))

    def _should_stop(self) -> str | None:
        """Return the reason to stop, or None."""
        if self.stopped is None and (reason := self.usage.exceeded) is not None:
            self._stop(reason)
        return self.stopped

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        self.schedule.close()
        self.hooks.on_stop(reason)

    def _count_error(self, message: str) -> None:
        self.consecutive_errors += 1
        if self.consecutive_errors >= MAX_CONSECUTIVE_ERRORS and self.stopped is None:
            self._stop(f"{self.consecutive_errors} episodes in a row ended as errors, the last with: {message}")


# Event loops ----------------------------------------------------------------------------------------------------------


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, even inside a running event loop (a notebook). An interrupt cancels the coroutine."""
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = []

    async def cancellable() -> T:
        task: asyncio.Task[T] | None = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        if received:
            task.cancel()
        return await work

    def cancel() -> None:
        for loop, task in running:
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

    with defer_interrupts(cancel) as received:
        if not _loop_is_running():
            return asyncio.run(cancellable())
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, cancellable()).result()


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently; if one fails, cancel the others, wait for them and raise its error."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect reference cycles less often; requests create almost none.

    With 64 concurrent requests, Python's default costs about 8% of the run time (`benchmarks/concurrency.py`).
    """
    before = gc.get_threshold()
    if before[0]:  # 0: disabled
        gc.set_threshold(max(ALLOCATIONS, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
