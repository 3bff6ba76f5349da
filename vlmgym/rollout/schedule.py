"""Episodes to play: which are left, and in which order they are begun."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from vlmgym.errors import UsageError
from vlmgym.records.episode import EpisodeRecord, GameRecord
from vlmgym.records.run_folder import changes
from vlmgym.rollout.turn import EpisodeConfig


@dataclass
class Job:
    """An episode to play, and its record from an earlier part of the run, if it has one that is no result."""

    rules: EpisodeConfig
    seed: int
    index: int
    stage: str | None = None
    earlier: EpisodeRecord | None = None
    done: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the other episodes of a run: game and seed."""
        return self.rules.game.id, self.seed

    def resume(self, earlier: EpisodeRecord) -> None:
        """Go on after an earlier record.

        Raises:
            UsageError: It was played by other rules.
        """
        rules = self.rules
        asked = {
            "game": GameRecord.of(rules.game).model_dump(mode="json"),
            "reward": rules.reward.model_dump(mode="json"),
            "history": rules.history,
            "history_images": rules.history_images,
            "max_turns": rules.max_turns,
        }
        played = {
            "game": earlier.game.model_dump(mode="json"),
            "reward": earlier.reward.model_dump(mode="json"),
            "history": earlier.history,
            "history_images": earlier.history_images,
            "max_turns": earlier.max_turns,
        }
        if different := [*map(str, changes(played, asked))]:
            raise UsageError(
                f"the record of {earlier.game.id}, seed {earlier.seed}, was played by other rules, so the run cannot "
                f"go on with it: {'; '.join(different)}"
            )
        self.done = earlier.score is not None
        self.earlier = None if self.done else earlier


class Schedule(ABC):
    """The episodes of a run.

    Attributes:
        count: How many there are.
        blocked: Why episodes that are left cannot be begun, or None.
        closed: Whether no more are begun.
    """

    count: int
    blocked: str | None = None
    closed: bool = False

    @abstractmethod
    def resume(self, record: EpisodeRecord) -> bool:
        """Take in a record of an earlier part of the run.

        Returns:
            Whether it is of use: the episode is one of these, and no result of it was taken in before.

        Raises:
            UsageError: It was played by other rules.
        """

    @property
    @abstractmethod
    def left(self) -> int:
        """How many have no result."""

    @abstractmethod
    async def next(self) -> Job | None:
        """The next episode that has no result; None: there is none, or it cannot be begun.

        Raises:
            UsageError: A record that was taken in does not fit.
        """

    def close(self) -> None:
        """Begin no more."""
        self.closed = True

    @abstractmethod
    def ended(self, record: EpisodeRecord) -> None:
        """Learn of the end of an episode."""

    @abstractmethod
    def place(self, record: EpisodeRecord) -> int:
        """Where an episode stands in the order of the run."""


class FixedSchedule(Schedule):
    """The same seeds of every game, whatever becomes of each other."""

    def __init__(self, rules: Sequence[EpisodeConfig], seed: int, episodes: int) -> None:
        """Begin; jobs are made one by one, however many there are.

        Args:
            rules: Of each game.
            seed: First seed.
            episodes: Of each game.

        Raises:
            UsageError: Two games have the same id.
        """
        self._rules = {each.game.id: each for each in rules}
        if len(self._rules) < len(rules):
            raise UsageError("a game is named twice, or two games have the same id")
        self._order = {game_id: number for number, game_id in enumerate(self._rules)}
        self._seed, self._episodes = seed, episodes
        self._resumed: dict[tuple[str, int], Job] = {}
        self._waiting = (Job(each, seed + index, index) for each in rules for index in range(episodes))
        self.count = len(rules) * episodes

    def resume(self, record: EpisodeRecord) -> bool:
        """As in `Schedule`."""
        rules, index = self._rules.get(record.game.id), record.seed - self._seed
        if rules is None or not 0 <= index < self._episodes:
            return False
        job = self._resumed.setdefault(record.key, Job(rules, record.seed, index))
        if job.done:
            return False
        job.resume(record)
        return True

    @property
    def left(self) -> int:
        """As in `Schedule`."""
        return self.count - sum(job.done for job in self._resumed.values())

    async def next(self) -> Job | None:
        """As in `Schedule`."""
        jobs = (self._resumed.get(job.key, job) for job in self._waiting)
        return None if self.closed else next((job for job in jobs if not job.done), None)

    def ended(self, record: EpisodeRecord) -> None:
        """Nothing follows from it."""

    def place(self, record: EpisodeRecord) -> int:
        """Game by game in the order of seeds."""
        return self._order[record.game.id] * self._episodes + record.seed - self._seed
