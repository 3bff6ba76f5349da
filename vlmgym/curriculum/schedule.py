"""Which entry and stage an episode is played at, and what its success changes: pure functions of values."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from vlmgym.curriculum.file import CurriculumFile, EntryFile, Measure, StageFile, read_file
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.registry import make_game

if TYPE_CHECKING:
    from vlmgym.records.episode import TurnRecord

_STREAM = 0x6D697874757265
"""Keeps the chance of the mixture apart from that of episodes, whose seeds are single numbers."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of an entry.

    Attributes:
        name: What records call it; None where an entry has no stages.
        game: The game at this stage.
        at_least: The measure from which on an episode is a success; None: the measure is the success.
    """

    name: str | None
    game: Game[Any, Any]
    at_least: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A game of the mixture.

    Attributes:
        stages: From the first.
        weight: How often it comes, in proportion to the other weights.
        begins: By episode: before how many episodes of the entry each stage begins; None: by success.
        measure: What success is.
        window: Over how many episodes it is averaged.
        up: The mean from which on the next stage follows.
        down: The mean down to which the stage before follows.
    """

    stages: tuple[Stage, ...]
    weight: float = 1.0
    begins: tuple[int, ...] | None = (0,)
    measure: Measure = "score"
    window: int = 1
    up: float = math.inf
    down: float = -math.inf


@dataclass(frozen=True, slots=True)
class Pick:
    """Where an episode is played.

    Attributes:
        entry: Which entry, from 0.
        game: The game at its stage.
        stage: Name of the stage; None where an entry has none.
    """

    entry: int
    game: Game[Any, Any]
    stage: str | None


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class EntryProgress(_Saved):
    """How far one entry has come.

    Attributes:
        game: Id of its game.
        stage: Its stage, from 0.
        episodes: Episodes that were counted, at all stages.
        recent: By success: the latest successes at the stage, oldest first, no more than the window.
    """

    game: str
    stage: int = Field(0, ge=0)
    episodes: int = Field(0, ge=0)
    recent: tuple[float, ...] = Field((), strict=False)


class Progress(_Saved):
    """How far a curriculum has come: JSON by `model_dump_json`, looked at by `Curriculum.check`."""

    entries: tuple[EntryProgress, ...] = Field(strict=False)


@dataclass(frozen=True)
class Curriculum:
    """A mixture of games, each with its stages.

    Nothing changes in place: who plays keeps a `Progress`, asks `pick` for each episode, and gives what was played to
    `after`. Games are built once.

    Attributes:
        entries: The games and their stages.
        file: What the file says; None where there is none.
    """

    entries: tuple[Entry, ...]
    file: CurriculumFile | None = None

    @classmethod
    def read(cls, path: Path) -> Curriculum:
        """The curriculum of a TOML file, or one that vlmgym brings along by its name, for instance `geospot`.

        Raises:
            UsageError: There is no such file, or it is not a curriculum; the message names file, entry and what is
                accepted.
        """
        try:
            return cls.from_file(read_file(path), str(path))
        except RecursionError:
            raise UsageError(f"{path} is nested too deeply for a curriculum") from None

    @classmethod
    def from_file(cls, file: CurriculumFile, source: str = "curriculum") -> Curriculum:
        """The curriculum that a file's content describes.

        Args:
            file: The content.
            source: What messages call it.

        Raises:
            UsageError: A game cannot be made, or a game has two stages of one name, or twice none.
        """
        entries = tuple(_entry(entry, f"{source}: entry {n}") for n, entry in enumerate(file.entries, 1))
        names = Counter((stage.game.id, stage.name) for entry in entries for stage in entry.stages)
        for (game, stage), count in names.items():
            if count > 1:
                twice = (
                    "is in two entries without stages: give each a stage with a name"
                    if stage is None
                    else f"has two stages {stage!r}: give each a name of its own"
                )
                raise UsageError(f"{source}: {game} {twice}")
        return cls(entries, file)

    @classmethod
    def of(cls, games: Sequence[Game[Any, Any]]) -> Curriculum:
        """Games of equal weights without stages.

        Raises:
            UsageError: There are none.
        """
        if not games:
            raise UsageError("a curriculum has at least one game")
        return cls(tuple(Entry((Stage(None, game),)) for game in games))

    def begin(self) -> Progress:
        """The progress before the first episode."""
        return Progress(entries=tuple(EntryProgress(game=entry.stages[0].game.id) for entry in self.entries))

    def check(self, progress: Progress) -> None:
        """Refuse a progress that is not one of this curriculum.

        Raises:
            UsageError: The message says what does not fit.
        """
        ours = [entry.stages[0].game.id for entry in self.entries]
        theirs = [state.game for state in progress.entries]
        if ours != theirs:
            raise UsageError(f"the progress is one of {', '.join(theirs)}, and the curriculum has {', '.join(ours)}")
        for n, (entry, state) in enumerate(zip(self.entries, progress.entries), 1):
            due = state.stage if entry.begins is None else _stage_at(entry.begins, state.episodes)
            window = entry.window if entry.begins is None else 0
            if (
                state.stage != due
                or state.stage >= len(entry.stages)
                or len(state.recent) > min(window, state.episodes)
            ):
                raise UsageError(
                    f"the progress of entry {n} (stage {state.stage + 1}, {state.episodes} episodes, window of "
                    f"{len(state.recent)}) is not one of this curriculum: its stages or its window are others"
                )

    def pick(self, progress: Progress, seed: int, index: int) -> Pick:
        """Where an episode is played; its entry depends on seed and index alone, its stage on the progress alone.

        Args:
            progress: What is known so far.
            seed: Seed of the run, at least 0.
            index: Number of the episode, from 0.
        """
        entry = self.entry_at(seed, index)
        stage = self.entries[entry].stages[progress.entries[entry].stage]
        return Pick(entry, stage.game, stage.name)

    def at(self, entry: int, stage: str | None) -> Pick:
        """The pick of an episode that was played.

        Args:
            entry: Which entry, from 0.
            stage: Name of its stage.

        Raises:
            UsageError: The entry has no such stage.
        """
        found = next((known for known in self.entries[entry].stages if known.name == stage), None)
        if found is None:
            raise UsageError(f"entry {entry + 1} of the curriculum has no stage {stage!r}")
        return Pick(entry, found.game, stage)

    def entry_at(self, seed: int, index: int) -> int:
        """The entry of an episode, from 0, drawn by the weights."""
        if len(self.entries) == 1:
            return 0
        drawn = np.random.default_rng((_STREAM, seed, index)).random() * self._bounds[-1]
        return min(bisect_right(self._bounds, drawn), len(self.entries) - 1)

    def success(self, pick: Pick, turns: Sequence[TurnRecord]) -> float:
        """The success of an episode, or of a single response, as the file defines it; without turns 0.

        Args:
            pick: Where it was played.
            turns: All turns of the episode.
        """
        entry = self.entries[pick.entry]
        measured = _measured(entry.measure, turns)
        least = next((stage.at_least for stage in entry.stages if stage.name == pick.stage), None)
        return measured if least is None else float(measured >= least)

    def after(self, progress: Progress, pick: Pick, success: float) -> Progress:
        """The progress once an episode has ended.

        An episode of a stage that has been left meanwhile is counted, but says nothing of the stage that came after.
        Of a group of responses to one position, one call counts one episode; its success may be their mean.

        Args:
            progress: The progress before.
            pick: Where the episode was played.
            success: How well it went, of `success`; of no meaning where the schedule is by episode.

        Raises:
            UsageError: The success is no finite number.
        """
        if not math.isfinite(success):
            raise UsageError(f"the success of an episode is a finite number, not {success!r}")
        entry, state = self.entries[pick.entry], progress.entries[pick.entry]
        stage, episodes, recent = state.stage, state.episodes + 1, state.recent
        if entry.begins is not None:
            stage = _stage_at(entry.begins, episodes)
        elif pick.stage == entry.stages[stage].name:
            recent = (*recent, success)[-entry.window :]
            mean = math.fsum(recent) / len(recent)
            step = 0 if len(recent) < entry.window else int(mean >= entry.up) - int(mean <= entry.down)
            if 0 <= stage + step < len(entry.stages) and step:
                stage, recent = stage + step, ()
        moved = EntryProgress(game=state.game, stage=stage, episodes=episodes, recent=recent)
        return Progress(entries=(*progress.entries[: pick.entry], moved, *progress.entries[pick.entry + 1 :]))

    @property
    def at_once(self) -> int:
        """How many episodes an evaluation plays at once, at most, where stages follow from success."""
        return 1 if self.file is None else self.file.at_once

    @property
    def by_success(self) -> bool:
        """Whether how episodes end decides about the stages of later ones."""
        return any(entry.begins is None for entry in self.entries)

    @cached_property
    def games(self) -> tuple[Game[Any, Any], ...]:
        """The games at all stages, each once."""
        return tuple(dict.fromkeys(stage.game for entry in self.entries for stage in entry.stages))

    @cached_property
    def _bounds(self) -> tuple[float, ...]:
        return tuple(accumulate(entry.weight for entry in self.entries))


def _entry(file: EntryFile, where: str) -> Entry:
    stages = []
    for n, stage in enumerate(file.stages or (StageFile(),), 1):
        levels = (stage.perception or file.perception, stage.reasoning or file.reasoning)
        overrides = {**file.overrides, **stage.overrides}
        place = f"{where}, stage {n}" if len(file.stages) > 1 else where
        for dial in ("perception", "reasoning"):
            if dial in overrides:
                raise UsageError(f"{place}: {dial} is a field of its own, not a config field")
        try:
            game = make_game(file.game, *levels, **overrides)
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from None
        name = (stage.name or str(n)) if file.stages else None
        stages.append(Stage(name, game, file.at_least if stage.at_least is None else stage.at_least))
    if file.by == "episode":
        lasts = (stage.episodes or 0 for stage in file.stages[:-1])
        return Entry(tuple(stages), file.weight, tuple(accumulate(lasts, initial=0)))
    up = math.inf if file.up is None else file.up
    down = -math.inf if file.down is None else file.down
    return Entry(tuple(stages), file.weight, None, file.measure or "score", file.window or 1, up, down)


def _stage_at(begins: Sequence[int], episodes: int) -> int:
    return bisect_right(begins, episodes) - 1


def _measured(measure: Measure, turns: Sequence[TurnRecord]) -> float:
    if (
        measure == "score"
    ):  # exact, and of turns also where there is a record, so that training moves as evaluation does
        return math.fsum(turn.reward.game for turn in turns)
    values = [turn.reward.total if measure == "reward" else turn.outcome == Outcome.PLAYED for turn in turns]
    return math.fsum(values) / len(values) if values else 0.0
