"""Order of the episodes of a run, and the episodes left to play when a run is resumed.

The stages of a curriculum do not depend on the finishing order of concurrent episodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vlmgym.curriculum import Curriculum, Pick
from vlmgym.errors import UsageError
from vlmgym.rollout.turn import GameSetup
from vlmgym.runs.record import EpisodeRecord, GameRecord, changes
from vlmgym.sandbox.core.game import Game


@dataclass
class Job:
    """An episode to play, and its unfinished record from an earlier session, if any."""

    setup: GameSetup
    seed: int
    index: int
    stage: str | None = None
    earlier_record: EpisodeRecord | None = None
    done: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Game id and seed, unique within a run."""
        return self.setup.game.id, self.seed

    def resume(self, record: EpisodeRecord) -> None:
        """Continue from an earlier record, or mark the episode as done if the record has a result.

        Raises:
            UsageError: The record was played with other settings.
        """
        setup = self.setup
        settings = {
            "game": GameRecord.of(setup.game).model_dump(mode="json"),
            "reward": setup.settings.reward.model_dump(mode="json"),
            "prompts": asdict(setup.prompts),
            "max_turns": setup.settings.max_turns,
        }
        recorded_settings = record.model_dump(mode="json", include=set(settings))
        if differences := [*map(str, changes(recorded_settings, settings))]:
            raise UsageError(
                f"cannot resume {record.game.id}, seed {record.seed}: it was played with other settings "
                f"({'; '.join(differences)})"
            )
        self.done = record.score is not None
        self.earlier_record = None if self.done else record


class FixedSchedule:
    """Episodes without a curriculum: the same seeds for every game.

    Attributes:
        total: Number of episodes.
        blocked: Why the remaining episodes cannot start, or None.
        closed: True once no more episodes may start.
    """

    blocked: str | None = None
    closed = False

    def __init__(self, setups: Sequence[GameSetup], seed: int, episodes: int) -> None:
        """Schedule `episodes` episodes per game; `seed` is the seed of the first."""
        self._setups = {setup.game.id: setup for setup in setups}
        self._seed, self._episodes = seed, episodes
        self._resumed: dict[tuple[str, int], Job] = {}
        self._jobs = (Job(setup, seed + index, index) for setup in setups for index in range(episodes))
        self.total = len(setups) * episodes

    def resume(self, record: EpisodeRecord) -> bool:
        """Add a record from an earlier session.

        Returns:
            False if the record was ignored: its episode is not part of this run, or already has a result.

        Raises:
            UsageError: The record was played with other settings.
        """
        setup, index = self._setups.get(record.game.id), record.seed - self._seed
        if setup is None or not 0 <= index < self._episodes:
            return False
        job = self._resumed.setdefault(record.key, Job(setup, record.seed, index))
        if job.done:
            return False
        job.resume(record)
        return True

    @property
    def remaining(self) -> int:
        """Number of episodes without a result in earlier sessions."""
        return self.total - sum(job.done for job in self._resumed.values())

    async def next(self) -> Job | None:
        """Return the next episode to play, or None if nothing is left or the schedule is blocked or closed.

        Raises:
            UsageError: An earlier record was played with other settings.
        """
        jobs = (self._resumed.get(job.key, job) for job in self._jobs)
        return None if self.closed else next((job for job in jobs if not job.done), None)

    def close(self) -> None:
        """Start no more episodes."""
        self.closed = True

    def finish(self, record: EpisodeRecord) -> None:
        """Add the record of an episode that has ended."""


class CurriculumSchedule(FixedSchedule):
    """Episodes of a curriculum in the order of their index; see `FixedSchedule`.

    If stages advance by success, episode i starts once all episodes up to i - `max_concurrency` have results, and its
    stage depends on exactly those results. A resumed run therefore reaches the same stages.
    """

    def __init__(
        self, curriculum: Curriculum, setup: Callable[[Game[Any, Any]], GameSetup], seed: int, episodes: int
    ) -> None:
        """Schedule `episodes` episodes in total; `seed` is the seed of the first episode and of the mixture."""
        self.total = episodes
        self._curriculum, self._setup, self._seed = curriculum, setup, seed
        self._lag = curriculum.max_concurrency if curriculum.by_success else 1
        self._progress = curriculum.begin()
        self._counted = self._picked = 0
        self._picks: dict[int, Pick] = {}  # picks of episodes that `_progress` does not include yet
        self._success: dict[int, float] = {}
        self._recorded: dict[int, EpisodeRecord] = {}
        self._results = 0
        self._failed: set[int] = set()
        self._changed = asyncio.Event()

    def resume(self, record: EpisodeRecord) -> bool:
        """Add a record; see `FixedSchedule.resume`."""
        index = record.index
        earlier_record = self._recorded.get(index)
        if not (0 <= index < self.total and record.seed == self._seed + index):
            return False
        if earlier_record is not None and earlier_record.score is not None:
            return False
        if record.score is None:
            self._recorded[index] = record
            return True
        pick = self._pick_of(record)
        Job(self._setup(pick.game), record.seed, index, pick.stage).resume(record)
        self._add_success(record)
        self._results += 1
        self._recorded[index] = record.model_copy(update={"turns": ()})
        return True

    @property
    def remaining(self) -> int:
        """Number of episodes without a result in earlier sessions."""
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
            progress = self._curriculum.at_step(self._progress, index)  # each episode counts as a step
            picks = self._curriculum.picks(progress, self._seed, range(self._counted, index + 1))
            pick = self._picks[index] = picks[index]
            job = Job(self._setup(pick.game), self._seed + index, index, pick.stage)
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

    def _pick_of(self, record: EpisodeRecord) -> Pick:
        return self._curriculum.at(self._curriculum.entry_at(self._seed, record.index), record.stage)

    def _add_success(self, record: EpisodeRecord) -> None:
        if self._curriculum.by_success:
            self._success[record.index] = self._curriculum.success(self._pick_of(record), record.turns)

    def _count_up_to(self, count: int) -> bool:
        """Include the first `count` episodes in the progress; return False if a result is missing."""
        while self._counted < count:
            success = self._success.get(self._counted) if self._curriculum.by_success else 0.0
            if success is None:
                return False
            self._progress = self._curriculum.after(self._progress, self._picks.pop(self._counted), success)
            self._success.pop(self._counted, None)
            self._counted += 1
        return True
