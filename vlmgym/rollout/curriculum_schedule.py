"""Schedule of a curriculum, whose stages do not depend on which concurrent episode ends first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from vlmgym.curriculum import Curriculum, Pick
from vlmgym.records.episode import EpisodeRecord
from vlmgym.rollout.schedule import Job, Schedule
from vlmgym.rollout.turn import EpisodeConfig
from vlmgym.sandbox.core.game import Game


class CurriculumSchedule(Schedule):
    """Episodes of a curriculum in the order of their index.

    With stages by success, episode i starts once all episodes up to i - `max_concurrency` have results, and its stage
    depends on exactly those results. A resumed run therefore reaches the same stages.
    """

    def __init__(
        self, curriculum: Curriculum, config: Callable[[Game[Any, Any]], EpisodeConfig], seed: int, episodes: int
    ) -> None:
        """Schedule `episodes` in total; `seed` seeds the first episode and the mixture."""
        self.total = episodes
        self._curriculum, self._config, self._seed = curriculum, config, seed
        self._lag = curriculum.max_concurrency if curriculum.by_success else 1
        self._progress = curriculum.begin()
        self._counted = self._picked = 0
        self._picks: dict[int, Pick] = {}  # of episodes that are not counted yet
        self._success: dict[int, float] = {}
        self._recorded: dict[int, EpisodeRecord] = {}
        self._results = 0
        self._failed: set[int] = set()
        self._changed = asyncio.Event()

    def resume(self, record: EpisodeRecord) -> bool:
        """Add a record; see `Schedule.resume`."""
        index = record.index
        known = self._recorded.get(index)
        if not (0 <= index < self.total and record.seed == self._seed + index):
            return False
        if known is not None and known.score is not None:
            return False
        if record.score is None:
            self._recorded[index] = record
            return True
        pick = self._pick_of(record)
        Job(self._config(pick.game), record.seed, index, pick.stage).resume(record)
        self._add_success(record)
        self._results += 1
        self._recorded[index] = record.model_copy(update={"turns": ()})
        return True

    @property
    def remaining(self) -> int:
        """Number of episodes without a result."""
        return self.total - self._results

    async def next(self) -> Job | None:
        """Return the next episode to play, once its stage is known."""
        while self._picked < self.total and self.blocked is None and not self.closed:
            index = self._picked
            if not self._count_up_to(index - self._lag + 1):
                if self._counted in self._failed:
                    self.blocked = f"episode {self._counted} has no result, so later stages are unknown"
                else:
                    self._changed.clear()
                    await self._changed.wait()
                continue
            self._picked += 1
            progress = self._curriculum.at_step(self._progress, index)  # each episode is a step
            picks = self._curriculum.picks(progress, self._seed, range(self._counted, index + 1))
            pick = self._picks[index] = picks[index]
            job = Job(self._config(pick.game), self._seed + index, index, pick.stage)
            if (record := self._recorded.pop(index, None)) is not None:
                job.resume(record)
            if not job.done:
                return job
        return None

    def close(self) -> None:
        """Start no more episodes, and wake all waiting calls of `next`."""
        super().close()
        self._changed.set()

    def finish(self, record: EpisodeRecord) -> None:
        """Add the success of an episode, or note that it has no result."""
        if record.score is None:
            self._failed.add(record.index)
        else:
            self._add_success(record)
        self._changed.set()

    def order(self, record: EpisodeRecord) -> int:
        """Return the index of the episode."""
        return record.index

    def _pick_of(self, record: EpisodeRecord) -> Pick:
        return self._curriculum.at(self._curriculum.entry_at(self._seed, record.index), record.stage)

    def _add_success(self, record: EpisodeRecord) -> None:
        if self._curriculum.by_success:
            self._success[record.index] = self._curriculum.success(self._pick_of(record), record.turns)

    def _count_up_to(self, count: int) -> bool:
        """Advance the progress to exactly the first `count` episodes; False if a result is missing."""
        while self._counted < count:
            success = self._success.get(self._counted) if self._curriculum.by_success else 0.0
            if success is None:
                return False
            self._progress = self._curriculum.after(self._progress, self._picks.pop(self._counted), success)
            self._success.pop(self._counted, None)
            self._counted += 1
        return True
