"""The episodes of a curriculum: each is picked with the results of those before it, however many are played at once."""

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
    """Episodes in the order of their index.

    By episode, number i is picked once all before it have been. By success, it is picked once those up to
    i - `at_once` have results, and with these results alone: which stage it is played at follows from results and
    never from their order in time, so that a resumed run comes to the same stages.
    """

    def __init__(
        self, curriculum: Curriculum, rules: Callable[[Game[Any, Any]], EpisodeConfig], seed: int, episodes: int
    ) -> None:
        """Begin.

        Args:
            curriculum: Which games and stages.
            rules: How a game is played.
            seed: Seed of the first episode, and of the mixture.
            episodes: How many, of all games together.
        """
        self.count = episodes
        self._curriculum, self._rules, self._seed = curriculum, rules, seed
        self._behind = curriculum.at_once if curriculum.by_success else 1
        self._progress = curriculum.begin()
        self._counted = self._picked = 0
        self._picks: dict[int, Pick] = {}  # of episodes that are not counted yet
        self._success: dict[int, float] = {}
        self._recorded: dict[int, EpisodeRecord] = {}
        self._results = 0
        self._lost: set[int] = set()
        self._changed = asyncio.Event()

    def resume(self, record: EpisodeRecord) -> bool:
        """As in `Schedule`."""
        index = record.index
        known = self._recorded.get(index)
        if not (0 <= index < self.count and record.seed == self._seed + index):
            return False
        if known is not None and known.score is not None:
            return False
        if record.score is None:
            self._recorded[index] = record
            return True
        pick = self._pick_of(record)
        Job(self._rules(pick.game), record.seed, index, pick.stage).resume(record)
        self._learn(record)
        self._results += 1
        self._recorded[index] = record.model_copy(update={"turns": ()})
        return True

    @property
    def left(self) -> int:
        """As in `Schedule`."""
        return self.count - self._results

    async def next(self) -> Job | None:
        """As in `Schedule`."""
        while self._picked < self.count and self.blocked is None and not self.closed:
            index = self._picked
            if not self._count_up_to(index - self._behind + 1):
                if self._counted in self._lost:
                    self.blocked = f"episode {self._counted} has no result, from which the stages of later ones follow"
                else:
                    self._changed.clear()
                    await self._changed.wait()
                continue
            self._picked += 1
            pick = self._picks[index] = self._curriculum.pick(self._progress, self._seed, index)
            job = Job(self._rules(pick.game), self._seed + index, index, pick.stage)
            if (record := self._recorded.pop(index, None)) is not None:
                job.resume(record)
            if not job.done:
                return job
        return None

    def close(self) -> None:
        """As in `Schedule`; who waits for a result waits no longer."""
        super().close()
        self._changed.set()

    def ended(self, record: EpisodeRecord) -> None:
        """Its success is known, or that it has no result."""
        if record.score is None:
            self._lost.add(record.index)
        else:
            self._learn(record)
        self._changed.set()

    def place(self, record: EpisodeRecord) -> int:
        """The order of picking."""
        return record.index

    def _pick_of(self, record: EpisodeRecord) -> Pick:
        return self._curriculum.at(self._curriculum.entry_at(self._seed, record.index), record.stage)

    def _learn(self, record: EpisodeRecord) -> None:
        if self._curriculum.by_success:
            self._success[record.index] = self._curriculum.success(self._pick_of(record), record.turns)

    def _count_up_to(self, count: int) -> bool:
        """Bring the progress to where exactly the first `count` episodes are counted; False: a result is missing."""
        while self._counted < count:
            success = self._success.get(self._counted) if self._curriculum.by_success else 0.0
            if success is None:
                return False
            self._progress = self._curriculum.after(self._progress, self._picks.pop(self._counted), success)
            self._success.pop(self._counted, None)
            self._counted += 1
        return True
