"""Plays episodes at once: each goes on by itself, its turns in worker processes, its policy wherever that lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from vlmgym.checks import as_int, check_instance
from vlmgym.curriculum import Curriculum
from vlmgym.errors import InfrastructureError, UsageError
from vlmgym.policies import ModelPolicy, Policy, PolicySpec, Prompt, StatePolicy, make_policy
from vlmgym.records.episode import EpisodeRecord, PolicyRecord, Status, TurnRecord, now
from vlmgym.rollout import turn as play
from vlmgym.rollout.budget import Budget, Spent
from vlmgym.rollout.curriculum_schedule import CurriculumSchedule
from vlmgym.rollout.event_loop import run_all, run_async
from vlmgym.rollout.gc_tuning import infrequent_gc
from vlmgym.rollout.limits import check_limits
from vlmgym.rollout.schedule import FixedSchedule, Job, Schedule
from vlmgym.rollout.turn import EpisodeConfig, EpisodeState
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.memory import EPISODE_BYTES, check_memory, frame_bytes
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.registry import make_games
from vlmgym.workers.pool import WorkerPool, open_pool
from vlmgym.workers.process import Backend, check_num_workers

TURNS_AT_ONCE = 10
"""Turns that a policy beside the game plays before progress is reported."""

ERRORS_IN_A_ROW = 10
"""The run stops when so many episodes in a row end as errors without a single response in between."""


@dataclass(frozen=True)
class Hooks:
    """What is called while episodes are played; all in the thread that plays.

    Attributes:
        on_loading: Called with what the policy loads before it is ready, and with None when it is.
        on_turns: Called after turns were played; those of `resume`, whose responses are only played again, are not.
        on_episode: Called with each record as its episode ends, in the order of ending; also with those that are no
            result (stopped, error).
        on_stop: Called with the reason when the run stops before everything is played.
    """

    on_loading: Callable[[str | None], None] = lambda _: None
    on_turns: Callable[[Sequence[TurnRecord]], None] = lambda _: None
    on_episode: Callable[[EpisodeRecord], None] = lambda _: None
    on_stop: Callable[[str], None] = lambda _: None


def evaluate(
    games: Game[Any, Any] | str | Sequence[Game[Any, Any] | str] | Curriculum,
    policy: PolicySpec,
    episodes: int = 10,
    *,
    max_turns: int = 100,
    seed: int = 0,
    concurrency: int = 64,
    workers: int | WorkerPool | None = None,
    backend: Backend = "process",
    history: int = 0,
    history_images: int = 0,
    reward: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
    budget: Budget = Budget(),  # noqa: B008 - frozen
    resume: Iterable[EpisodeRecord] = (),
    hooks: Hooks = Hooks(),
    collect: bool = True,
) -> list[EpisodeRecord]:
    """Play episodes and return their records, game by game in the order of their seeds; of a curriculum in their order.

    Args:
        games: A game or its id, or several, each played with the same seeds; or a curriculum.
        policy: A policy, its name, or a function `(images_batch, prompt_batch) -> responses`.
        episodes: How many of each game, or of the curriculum; their seeds are `seed`, `seed + 1`, ...
        max_turns: Limit of turns of an episode; an illegal or unparsable response uses one up.
        seed: First seed.
        concurrency: How many episodes are played at once, at most.
        workers: Worker processes, at most 8 per core; 0 plays in this process; None: one per core. Never more than
            episodes. Or a pool.
        backend: `process`: the processes are of this machine; `ray`: of a Ray cluster, see `vlmgym.workers.ray`.
        history: How many earlier turns a prompt repeats.
        history_images: Of how many of them the images are shown again.
        reward: Weights and shaping.
        budget: Prices, and what the run may spend, with what `resume` has spent.
        resume: Records of an earlier part of this run: results are not played again, and others are gone on with. They
            are taken one after another, so that those that are results need not be in memory together.
        hooks: What to call meanwhile.
        collect: Whether records stay in memory, to be returned; without, only `hooks` get them.

    Returns:
        All records, those of `resume` that are results included; none without `collect`. When a budget is used up, or
        the run stops because the model cannot be reached, episodes may be missing, and those that were running have no
        score.

    Raises:
        UsageError: An argument is not accepted.
        PolicyError: The policy failed; `on_episode` has had all episodes that ended before.
        WorkerError: A worker process died.
    """
    check_num_workers("workers", None if isinstance(workers, WorkerPool) else workers, backend)
    check_instance("reward", reward, RewardConfig)
    check_instance("budget", budget, Budget)
    episodes, max_turns, seed, concurrency = map(as_int, (episodes, max_turns, seed, concurrency))
    history, history_images = as_int(history), as_int(history_images)
    check_limits(episodes, max_turns, seed, concurrency, history, history_images)
    made = [*games.games] if isinstance(games, Curriculum) else make_games(games)
    player = make_policy(policy)
    for game in made:
        player.check(game)
    check_policy(player, budget, history_images)
    check_concurrency(made, episodes, concurrency)
    look = player.look if isinstance(player, ModelPolicy) else None

    def rules(game: Game[Any, Any]) -> EpisodeConfig:
        return EpisodeConfig(game, reward, max_turns, history, history_images, look)

    jobs: Schedule
    if isinstance(games, Curriculum):
        jobs = CurriculumSchedule(games, rules, seed, episodes)
    else:
        jobs = FixedSchedule([*map(rules, made)], seed, episodes)
    spent = Spent(budget)
    collected: dict[tuple[str, int], EpisodeRecord] = {}
    for record in resume:
        for turn in record.turns:
            spent.add(turn)
        if jobs.resume(record) and collect:
            collected[record.key] = record

    def on_episode(record: EpisodeRecord) -> None:
        if collect:
            collected[record.key] = record
        hooks.on_episode(record)

    pool = nullcontext(workers) if isinstance(workers, WorkerPool) else open_pool(backend, jobs.count, workers)
    with pool as running:
        runner = _Runner(jobs, player, running, concurrency, spent, replace(hooks, on_episode=on_episode))
        with infrequent_gc():
            run_async(runner.play())
    return sorted(collected.values(), key=jobs.place)


def check_concurrency(games: Sequence[Game[Any, Any]], episodes: int, concurrency: int) -> None:
    """Refuse to play more episodes at once than fit into memory with their images.

    Raises:
        UsageError: They do not fit.
    """
    at_once = min(concurrency, episodes * len(games))
    each = EPISODE_BYTES + max(map(frame_bytes, games))
    check_memory(at_once * each, f"{at_once:,} episodes at once", "lower concurrency")


def check_policy(policy: Policy, budget: Budget, history_images: int) -> None:
    """Refuse a budget or prices where nobody counts tokens, and earlier images where nobody sees them.

    Raises:
        UsageError: The policy does not.
    """
    if history_images and isinstance(policy, ModelPolicy) and not policy.supports_history_images:
        raise UsageError(f"{policy.name} is not shown the images of earlier turns: leave out --history-images")
    if budget != Budget() and not policy.counts_tokens:
        raise UsageError(f"{policy.name} does not count tokens, so it has no price and no budget")


@dataclass
class _Running:
    """An episode that is being played."""

    job: Job
    position: EpisodeState
    turns: list[TurnRecord]
    started: str = field(default_factory=now)


class _Runner:
    def __init__(
        self, jobs: Schedule, policy: Policy, workers: WorkerPool, concurrency: int, spent: Spent, hooks: Hooks
    ) -> None:
        self.jobs, self.policy, self.workers, self.spent, self.hooks = jobs, policy, workers, spent, hooks
        at_once = policy.max_concurrency if isinstance(policy, ModelPolicy) else None
        self.concurrency = min(concurrency, at_once or concurrency)
        self.running: dict[tuple[str, int], _Running] = {}
        self.stopped: str | None = None
        self.errors_in_a_row = 0

    async def play(self) -> None:
        left = self.jobs.left

        async def play_one_after_another() -> None:
            while not self._over() and (job := await self.jobs.next()) is not None:
                await self._episode(job)

        if isinstance(self.policy, ModelPolicy) and left:
            self.hooks.on_loading(self.policy.loading)
            await self.policy.begin_run()
            self.hooks.on_loading(None)
        try:
            await run_all(play_one_after_another() for _ in range(min(self.concurrency, left)))
            if self.jobs.blocked is not None and self.stopped is None:
                self._stop(self.jobs.blocked)
        finally:
            try:
                for running in list(self.running.values()):  # Ctrl-C, a failed policy: what was played is kept
                    if running.turns:
                        self._end(running, ("stopped", "the run was interrupted"))
            finally:
                if isinstance(self.policy, ModelPolicy) and left:
                    await self.policy.end_run()

    async def _episode(self, job: Job) -> None:
        earlier = job.earlier.turns if job.earlier is not None else ()
        turns, position = await self.workers.call(play.resume_episode, job.rules, job.seed, earlier)
        running = self.running[job.key] = _Running(job, position, turns)
        self._expect()
        try:
            while running.position.end is None:
                if (reason := self._over()) is not None:
                    return self._end(running, ("stopped", reason))
                await self._play_on(running)
        except InfrastructureError as error:
            self._count_error(str(error))
            return self._end(running, ("error", str(error)))
        return self._end(running)

    async def _play_on(self, running: _Running) -> None:
        rules, position = running.job.rules, running.position
        if isinstance(self.policy, StatePolicy):
            played, running.position = await self.workers.call(
                play.play_turns, rules, position, self.policy, TURNS_AT_ONCE
            )
        elif isinstance(self.policy, ModelPolicy):
            snapshot = position.snapshot
            prompt = Prompt(position.prompt, rules.game, snapshot.seed, snapshot.turn, snapshot, images=position.images)
            asked = time.perf_counter()
            reply = await self.policy.respond(position.images, prompt)
            if reply.latency is None:
                reply = replace(reply, latency=time.perf_counter() - asked)
            self.errors_in_a_row = 0
            cost = self.spent.price(reply, self.policy.name)
            turn, running.position = await self.workers.call(
                play.respond, rules, play.without_images(position), reply, cost
            )
            played = [turn]
            self.spent.add(turn)
        running.turns += played
        self.hooks.on_turns(played)

    def _end(self, running: _Running, failed: tuple[Status, str] | None = None) -> None:
        """Make the record of an episode that is not played any further."""
        job = running.job
        record = play.episode_record(
            job.rules,
            running.position,
            running.turns,
            policy=PolicyRecord(name=self.policy.name, options=self.policy.options.without_operational()),
            seed=job.seed,
            index=job.index,
            started=running.started,
            attempt=1 if job.earlier is None else job.earlier.attempt + 1,
            stage=job.stage,
            failed=failed,
        )
        del self.running[job.key]
        self.hooks.on_episode(record)
        self.jobs.ended(record)
        self._expect()

    def _expect(self) -> None:
        if isinstance(self.policy, ModelPolicy):
            self.policy.set_running_episodes(len(self.running))

    def _over(self) -> str | None:
        """Why nothing more is to be asked, or None."""
        if self.stopped is None and (reason := self.spent.over) is not None:
            self._stop(reason)
        return self.stopped

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        self.jobs.close()
        self.hooks.on_stop(reason)

    def _count_error(self, message: str) -> None:
        self.errors_in_a_row += 1
        if self.errors_in_a_row >= ERRORS_IN_A_ROW and self.stopped is None:
            self._stop(f"{self.errors_in_a_row} episodes in a row ended as errors, the last with: {message}")
