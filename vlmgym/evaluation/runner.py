"""Plays episodes at once: each goes on by itself, its turns in worker processes, its policy wherever that lives."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

from vlmgym.evaluation import turns as play
from vlmgym.evaluation.config import check_limits
from vlmgym.evaluation.record import EpisodeRecord, TurnRecord
from vlmgym.evaluation.turns import Position, Rules
from vlmgym.evaluation.workers import Workers, workers_for
from vlmgym.policies import CustomFunction, Policy, make_policy
from vlmgym.policies.base import ModelPolicy, Prompt, StatePolicy
from vlmgym.sandbox.game import Game
from vlmgym.sandbox.registry import make_game
from vlmgym.sandbox.reward import RewardConfig

T = TypeVar("T")

TURNS_AT_ONCE = 10
"""Turns that a policy beside the game plays before progress is reported."""

OnTurns = Callable[[list[TurnRecord]], None]
OnEpisode = Callable[[EpisodeRecord], None]


def evaluate(
    game: Game[Any, Any] | str,
    policy: Policy | CustomFunction | str,
    episodes: int = 10,
    *,
    turns: int = 100,
    seed: int = 0,
    concurrency: int = 64,
    workers: int | Workers | None = None,
    history: int = 0,
    reward: RewardConfig = RewardConfig(),  # noqa: B008 - frozen
    timeout: float = 300.0,
    on_turns: OnTurns | None = None,
    on_episode: OnEpisode | None = None,
) -> list[EpisodeRecord]:
    """Play episodes and return their records in the order of their seeds.

    Args:
        game: A game, or its id.
        policy: A policy, its name, or a function `(images_batch, prompt_batch) -> list[str]`.
        episodes: How many; their seeds are `seed`, `seed + 1`, ...
        turns: Limit of turns of an episode; an illegal or unparsable response uses one up.
        seed: First seed.
        concurrency: How many episodes are played at once, at most.
        workers: Worker processes; 0 plays in this process; None: one per core, and no more than episodes. Or a pool.
        history: How many earlier turns a prompt repeats.
        reward: Weights and shaping.
        timeout: Seconds that one call of a function may take.
        on_turns: Called after turns were played.
        on_episode: Called with each record as its episode ends, in the order of ending.

    Raises:
        UsageError: An argument is not accepted.
        PolicyError: The policy failed; `on_episode` has had all episodes that ended before.
        WorkerError: A worker process died.
    """
    count = workers.count if isinstance(workers, Workers) else workers
    check_limits(episodes, turns, seed, concurrency, history, count, timeout)
    rules = Rules(make_game(game) if isinstance(game, str) else game, reward, turns, history)
    made = make_policy(policy, rules.game, timeout)
    with nullcontext(workers) if isinstance(workers, Workers) else Workers(workers_for(episodes, workers)) as pool:
        runner = _Runner(rules, made, pool, concurrency, on_turns, on_episode)
        records = run_async(runner.play(range(seed, seed + episodes)))
    return sorted(records, key=lambda record: record.seed)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, also where an event loop is running already (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_ended_by_interrupt(work))
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def _ended_by_interrupt(work: Coroutine[Any, Any, T]) -> T:
    """Cancel the work on Ctrl-C instead of raising in the middle of a task, as `asyncio.run` does since Python 3.11."""
    if sys.version_info >= (3, 11) or threading.current_thread() is not threading.main_thread():
        return await work
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class _Runner:
    def __init__(
        self,
        rules: Rules,
        policy: Policy,
        workers: Workers,
        concurrency: int,
        on_turns: OnTurns | None,
        on_episode: OnEpisode | None,
    ) -> None:
        self.rules, self.policy, self.workers, self.concurrency = rules, policy, workers, concurrency
        self.on_turns = on_turns or (lambda _: None)
        self.on_episode = on_episode or (lambda _: None)
        self.running = 0

    async def play(self, seeds: range) -> list[EpisodeRecord]:
        waiting = iter(seeds)
        records: list[EpisodeRecord] = []

        async def play_one_after_another() -> None:
            for seed in waiting:
                self._running(+1)
                record = await self._episode(seed)
                self._running(-1)
                self.on_episode(record)
                records.append(record)

        players = [asyncio.create_task(play_one_after_another()) for _ in range(min(self.concurrency, len(seeds)))]
        try:
            await asyncio.gather(*players)
        finally:
            for player in players:
                player.cancel()
        return records

    def _running(self, change: int) -> None:
        self.running += change
        if isinstance(self.policy, ModelPolicy):
            self.policy.expect(self.running)

    async def _episode(self, seed: int) -> EpisodeRecord:
        position = await self.workers.call(play.start, self.rules, seed, isinstance(self.policy, ModelPolicy))
        record: list[TurnRecord] = []
        while position.end is None:
            played, position = await self._turns(position)
            record += played
            self.on_turns(played)
        return play.finish(self.rules, self.policy.name, position, record)

    async def _turns(self, position: Position) -> tuple[list[TurnRecord], Position]:
        if isinstance(self.policy, StatePolicy):
            return await self.workers.call(play.play_on, self.rules, position, self.policy, TURNS_AT_ONCE)
        snapshot = position.snapshot
        prompt = Prompt(position.prompt, self.rules.game, snapshot.seed, snapshot.turn)
        asked = time.perf_counter()
        reply = await self.policy.respond(position.images or [], prompt)
        latency = time.perf_counter() - asked
        turn, position = await self.workers.call(
            play.respond, self.rules, play.without_images(position), reply, latency
        )
        return [turn], position
