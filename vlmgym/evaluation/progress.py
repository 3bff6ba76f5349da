"""Progress bars for the episodes of a run, and for function calls in worker processes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.text import Text

from vlmgym.policies import ModelPolicy, Policy
from vlmgym.rollout.runner import run_async
from vlmgym.runs.record import EpisodeRecord, TurnRecord
from vlmgym.terminal import PROGRESS_COLUMNS, ProgressWithStatus, make_console
from vlmgym.workers.pool import ProcessPool

T = TypeVar("T")


def call_in_order(
    workers: ProcessPool,
    function: Callable[..., T],
    calls: Sequence[tuple[Any, ...]],
    take: Callable[[T], None],
    *,
    label: str,
    ahead: int = 2,
) -> None:
    """Call a function in worker processes and pass its results to `take`, in the order of `calls`.

    At most `ahead` calls per worker, plus one, are pending or hold results in memory. If a call fails, the others are
    cancelled. Progress is shown on standard error.
    """

    async def run() -> None:
        waiting: deque[asyncio.Task[T]] = deque()
        with Progress(*PROGRESS_COLUMNS, console=make_console(stderr=True)) as bar:
            task = bar.add_task(label, total=len(calls))
            try:
                for number in range(len(calls) + ahead * workers.count):
                    if number < len(calls):
                        waiting.append(asyncio.create_task(workers.call(function, *calls[number])))
                    if number >= ahead * workers.count:
                        take(await waiting.popleft())
                        bar.advance(task)
            finally:  # otherwise asyncio logs the errors of tasks that are not awaited
                for call in waiting:
                    call.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    run_async(run())


class LiveProgress(ProgressWithStatus):
    """Progress bar that counts played turns, with episodes, mean scores, turns/s, tokens, cost and errors so far.

    The projected cost assumes that running and further episodes reach the turn limit.

    A line below has the policy's `status`, such as retried requests.
    """

    def __init__(self, console: Console, games: Sequence[str], episodes: int, turns: int, policy: Policy) -> None:
        """Create the display for a total of `episodes` episodes of these games, with at most `turns` turns each."""
        self._policy = policy
        self._scores: dict[str, list[float]] = {game: [] for game in games}
        self._episodes, self._max_turns = episodes, turns
        self._turns = self._tokens = self._errors = 0
        self._cost = 0.0
        self._began = time.perf_counter()
        self._total = episodes * turns
        super().__init__(console)
        self._bar = self.add_task("turns", total=self._total)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bar and the lines below it."""
        if self._turns or self._errors:
            self.facts = self._facts()
        yield from super().get_renderables()
        if isinstance(self._policy, ModelPolicy) and (status := self._policy.status):
            yield Text(status, no_wrap=True, overflow="ellipsis")

    def loading(self, what: str | None) -> None:
        """Show what is being loaded before the first turn; None when done."""
        self.facts = "" if what is None else f"loading {what}"
        if what is None:
            self._began = time.perf_counter()

    def turns(self, turns: Sequence[TurnRecord]) -> None:
        """Count new turns."""
        self._turns += len(turns)
        self._tokens += sum((turn.prompt_tokens or 0) + (turn.completion_tokens or 0) for turn in turns)
        self._cost += sum(turn.cost or 0.0 for turn in turns)
        self.update(self._bar, advance=len(turns))

    def episode(self, episode: EpisodeRecord) -> None:
        """Count a finished episode, and leave the turns that it did not need out of the total."""
        if episode.score is not None:
            self._scores[episode.game.id].append(episode.score)
            self._total -= self._max_turns - len(episode.turns)
        self._errors += episode.status == "error"
        self.update(self._bar, total=self._total)

    def _facts(self) -> str:
        done = sum(map(len, self._scores.values()))
        facts = [f"{done}/{self._episodes} episodes"]
        for game, scores in self._scores.items():
            if scores:
                which = f"{game} " if len(self._scores) > 1 else ""
                facts.append(f"{which}mean {sum(scores) / len(scores):,.1f}")
        facts.append(f"{self._turns / max(time.perf_counter() - self._began, 1e-3):,.1f} turns/s")
        if self._tokens:
            facts.append(f"{self._tokens:,} tokens")
        if self._cost:
            facts.append(f"cost {self._cost:,.4g} of about {self._cost * self._total / self._turns:,.4g}")
        if self._errors:
            facts.append(f"errors: {self._errors}")
        return ", ".join(facts)
