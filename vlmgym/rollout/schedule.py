"""Order of the episodes of a run, and which of them are left after an interruption."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from vlmgym.errors import UsageError
from vlmgym.records.episode import EpisodeRecord, GameRecord
from vlmgym.records.run import changes
from vlmgym.rollout.turn import EpisodeConfig


@dataclass
class Job:
    """An episode to play, with its unfinished record from an earlier session if there is one."""

    config: EpisodeConfig
    seed: int
    index: int
    stage: str | None = None
    earlier: EpisodeRecord | None = None
    done: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Game id and seed, unique within a run."""
        return self.config.game.id, self.seed

    def resume(self, earlier: EpisodeRecord) -> None:
        """Continue from an earlier record; raise `UsageError` if it was played with other settings."""
        config = self.config
        now = {
            "game": GameRecord.of(config.game).model_dump(mode="json"),
            "reward": config.reward.model_dump(mode="json"),
            "prompts": asdict(config.prompts),
            "max_turns": config.max_turns,
        }
        before = earlier.model_dump(mode="json", include=set(now))
        if different := [*map(str, changes(before, now))]:
            raise UsageError(
                f"cannot resume {earlier.game.id}, seed {earlier.seed}: it was played with other settings "
                f"({'; '.join(different)})"
            )
        self.done = earlier.score is not None
        self.earlier = None if self.done else earlier


class Schedule(ABC):
    """The episodes of a run.

    Attributes:
        total: Number of episodes.
        blocked: Why the remaining episodes cannot start, or None.
        closed: Whether no more episodes may start.
    """

    total: int
    blocked: str | None = None
    closed: bool = False

    @abstractmethod
    def resume(self, record: EpisodeRecord) -> bool:
        """Add a record of an earlier session; return True if it belongs to this schedule and has no result yet.

        Raises:
            UsageError: It was played with other settings.
        """

    @property
    @abstractmethod
    def remaining(self) -> int:
        """Number of episodes without a result."""

    @abstractmethod
    async def next(self) -> Job | None:
        """Return the next episode to play, or None if nothing is left or the schedule is blocked.

        Raises:
            UsageError: An earlier record was played with other settings.
        """

    def close(self) -> None:
        """Start no more episodes."""
        self.closed = True

    def finish(self, record: EpisodeRecord) -> None:  # noqa: B027 - optional to override
        """Add the record of an episode that has ended."""

    @abstractmethod
    def order(self, record: EpisodeRecord) -> int:
        """Return the index of an episode in the order of the run."""


class FixedSchedule(Schedule):
    """The same seeds for every game."""

    def __init__(self, configs: Sequence[EpisodeConfig], seed: int, episodes: int) -> None:
        """Schedule `episodes` per game, from the first seed."""
        self._configs = {config.game.id: config for config in configs}
        self._order = {game_id: number for number, game_id in enumerate(self._configs)}
        self._seed, self._episodes = seed, episodes
        self._resumed: dict[tuple[str, int], Job] = {}
        self._jobs = (Job(config, seed + index, index) for config in configs for index in range(episodes))
        self.total = len(configs) * episodes

    def resume(self, record: EpisodeRecord) -> bool:
        """Add a record; see `Schedule.resume`."""
        config, index = self._configs.get(record.game.id), record.seed - self._seed
        if config is None or not 0 <= index < self._episodes:
            return False
        job = self._resumed.setdefault(record.key, Job(config, record.seed, index))
        if job.done:
            return False
        job.resume(record)
        return True

    @property
    def remaining(self) -> int:
        """Number of episodes without a result."""
        return self.total - sum(job.done for job in self._resumed.values())

    async def next(self) -> Job | None:
        """Return the next episode to play."""
        jobs = (self._resumed.get(job.key, job) for job in self._jobs)
        return None if self.closed else next((job for job in jobs if not job.done), None)

    def order(self, record: EpisodeRecord) -> int:
        """Return the index in the order by game, then by seed."""
        return self._order[record.game.id] * self._episodes + record.seed - self._seed
