"""Entry and stage of each episode, as pure functions of seed and progress."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, JsonValue

from vlmgym.curriculum.file import CurriculumFile, EntryFile, Measure, StageFile, StrictModel, read_file, with_data
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.core.task import Task
from vlmgym.sandbox.registry import make_game

if TYPE_CHECKING:
    from vlmgym.runs.record import TurnRecord

_STREAM = 0x6D697874757265
"""Separates the random stream of the mixture from the streams of episodes, whose seeds are single numbers."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of an entry; see `StageFile`. An entry without stages has a single, unnamed stage."""

    name: str | None
    game: Game[Any, Any]
    at_least: float | None = None


@dataclass(frozen=True)
class Entry:
    """A game of the mixture: its weight and schedule as in the file, and its stages with their games."""

    file: EntryFile
    stages: tuple[Stage, ...]

    @cached_property
    def begins(self) -> tuple[int, ...] | None:
        """Number of training steps, or of episodes of the entry, after which each stage begins; None by success."""
        durations = (stage.duration or 0 for stage in self.file.stages[:-1])
        return None if self.file.by == "success" else tuple(accumulate(durations, initial=0))


@dataclass(frozen=True, slots=True)
class Pick:
    """Entry and stage of an episode.

    Attributes:
        entry: Index of the entry.
        game: The game as configured at this stage.
        stage: Name of the stage; None if the entry has no stages.
    """

    entry: int
    game: Game[Any, Any]
    stage: str | None


class EntryProgress(StrictModel):
    """Progress of an entry.

    Attributes:
        game: Id of the game.
        stage: Index of the current stage.
        episodes: Number of finished episodes, over all stages.
        recent: Success of the latest episodes at the current stage, oldest first, at most `window` of them; empty
            unless stages advance by success.
    """

    game: str
    stage: int = Field(0, ge=0)
    episodes: int = Field(0, ge=0)
    recent: tuple[float, ...] = Field((), strict=False)


class Progress(StrictModel):
    """Progress of a curriculum. Serialise with `model_dump_json`, validate with `Curriculum.check`.

    Attributes:
        entries: Progress of each entry.
        steps: Number of finished training steps.
    """

    entries: tuple[EntryProgress, ...] = Field(strict=False)
    steps: int = Field(0, ge=0)


@dataclass(frozen=True)
class Curriculum:
    """A mixture of games with stages.

    Immutable: callers keep a `Progress`, `pick` each episode, and pass its success to `after`. Trainers start a batch
    with `picks` and end it with `at_step`.

    Attributes:
        entries: Games and their stages.
        file: Contents of the file, if any.
    """

    entries: tuple[Entry, ...]
    file: CurriculumFile | None = None

    @classmethod
    def read(cls, path: Path, data: Mapping[str, Any] | None = None) -> Curriculum:
        """Read a curriculum from a TOML file, or a built-in one by its name; see `read_file`.

        `data` replaces settings such as `data` and `split` of all entries that take data; see `with_data`.
        """
        return cls.from_file(with_data(read_file(path), data or {}), str(path))

    @classmethod
    def from_file(cls, file: CurriculumFile, source: str = "curriculum") -> Curriculum:
        """Make a curriculum from the contents of a file; `source` is its name in error messages.

        Raises:
            UsageError: A game cannot be made, or two stages of a game have the same name or are both unnamed.
        """
        entries = tuple(_entry(entry, f"{source}: entry {n}") for n, entry in enumerate(file.entries, 1))
        names = Counter((stage.game.id, stage.name) for entry in entries for stage in entry.stages)
        for (game, stage), count in names.items():
            if count > 1:
                conflict = (
                    "is in two entries without stages: give each entry a stage with a name"
                    if stage is None
                    else f"has two stages named {stage!r}: choose different names"
                )
                raise UsageError(f"{source}: {game} {conflict}")
        return cls(entries, file)

    @classmethod
    def of(cls, games: Sequence[Game[Any, Any]]) -> Curriculum:
        """Make a curriculum that samples the games uniformly, without stages; `games` must not be empty."""
        if not games:
            raise UsageError("a curriculum needs at least one game")
        return cls(tuple(Entry(EntryFile(game=game.id), (Stage(None, game),)) for game in games))

    def begin(self) -> Progress:
        """Return the progress before the first episode."""
        return Progress(entries=tuple(EntryProgress(game=entry.stages[0].game.id) for entry in self.entries))

    def check(self, progress: Progress) -> None:
        """Raise `UsageError` unless `progress` fits the games of this curriculum and their numbers of stages."""
        ids = [entry.stages[0].game.id for entry in self.entries]
        progress_ids = [state.game for state in progress.entries]
        if ids != progress_ids:
            raise UsageError(f"the progress is for {', '.join(progress_ids)}, but the curriculum has {', '.join(ids)}")
        if any(state.stage >= len(entry.stages) for entry, state in zip(self.entries, progress.entries)):
            raise UsageError("the progress is from another curriculum, with more stages")

    def pick(self, progress: Progress, seed: int, index: int) -> Pick:
        """Return the entry and stage of an episode.

        The entry depends only on seed and index, the stage only on the progress of the entry.
        """
        entry = self.entry_at(seed, index)
        stage = self.entries[entry].stages[progress.entries[entry].stage]
        return Pick(entry, stage.game, stage.name)

    def picks(self, progress: Progress, seed: int, indices: Iterable[int]) -> dict[int, Pick]:
        """Return the picks of a batch, by index, before any of the batch's results are known.

        The first index must be the first episode after `progress`. Stages that advance by episode can change
        within the batch; stages that advance by step or by success do not.
        """
        picks = {}
        for index in indices:
            pick = picks[index] = self.pick(progress, seed, index)
            if self.entries[pick.entry].file.by == "episode":
                progress = self.after(progress, pick, 0.0)
        return picks

    def at_step(self, progress: Progress, steps: int) -> Progress:
        """Return the progress after `steps` training steps, with new stages for entries that advance by step."""
        entries = (
            state.model_copy(update={"stage": _stage_at(entry, steps)}) if entry.file.by == "step" else state
            for entry, state in zip(self.entries, progress.entries)
        )
        return Progress(entries=tuple(entries), steps=steps)

    def at(self, entry: int, stage: str | None) -> Pick:
        """Return the pick of a recorded episode; raise `UsageError` if the entry has no such stage."""
        match = next((candidate for candidate in self.entries[entry].stages if candidate.name == stage), None)
        if match is None:
            raise UsageError(f"entry {entry + 1} of the curriculum has no stage {stage!r}")
        return Pick(entry, match.game, stage)

    def entry_at(self, seed: int, index: int) -> int:
        """Draw the entry of an episode by weight, and return its index."""
        if len(self.entries) == 1:
            return 0
        point = np.random.default_rng((_STREAM, seed, index)).random() * self._bounds[-1]
        return min(bisect_right(self._bounds, point), len(self.entries) - 1)

    def success(self, pick: Pick, turns: Sequence[TurnRecord]) -> float:
        """Compute the success of an episode or of a single response from its turns; the measure is 0 without turns."""
        entry = self.entries[pick.entry]
        value = _measured(entry.file.measure or "score", turns)
        threshold = next((stage.at_least for stage in entry.stages if stage.name == pick.stage), None)
        return value if threshold is None else float(value >= threshold)

    def after(self, progress: Progress, pick: Pick, success: float) -> Progress:
        """Return the progress after an episode.

        An episode picked at another stage is counted, but its success is ignored. A group of responses to one state
        counts as one episode, for instance with the mean success of the group.
        """
        entry, state = self.entries[pick.entry], progress.entries[pick.entry]
        stage, episodes, recent, file = state.stage, state.episodes + 1, state.recent, entry.file
        if file.by == "episode":
            stage = _stage_at(entry, episodes)
        elif file.by == "success" and pick.stage == entry.stages[stage].name:
            window = file.window or 1
            recent = (*recent, success)[-window:]
            mean = math.fsum(recent) / len(recent)
            is_up, is_down = file.up is not None and mean >= file.up, file.down is not None and mean <= file.down
            step = 0 if len(recent) < window else int(is_up) - int(is_down)
            if 0 <= stage + step < len(entry.stages) and step:
                stage, recent = stage + step, ()
        entry_progress = EntryProgress(game=state.game, stage=stage, episodes=episodes, recent=recent)
        entries = (*progress.entries[: pick.entry], entry_progress, *progress.entries[pick.entry + 1 :])
        return progress.model_copy(update={"entries": entries})

    def to_data(self) -> dict[str, JsonValue] | None:
        """Return the contents of the file, JSON-serialisable, for records; None if there is no file."""
        return None if self.file is None else self.file.model_dump(mode="json", exclude_none=True)

    @property
    def max_concurrency(self) -> int:
        """Maximum number of concurrent episodes in an evaluation if stages advance by success."""
        return 1 if self.file is None else self.file.max_concurrency

    @property
    def by_success(self) -> bool:
        """True if any stages advance by success and therefore depend on the results of earlier episodes."""
        return any(entry.begins is None for entry in self.entries)

    @cached_property
    def games(self) -> tuple[Game[Any, Any], ...]:
        """Games of all stages, without duplicates."""
        return tuple(dict.fromkeys(stage.game for entry in self.entries for stage in entry.stages))

    @cached_property
    def _bounds(self) -> tuple[float, ...]:
        return tuple(accumulate(entry.file.weight for entry in self.entries))


def _entry(file: EntryFile, location: str) -> Entry:
    stages = []
    for n, stage in enumerate(file.stages or (StageFile(),), 1):
        levels = (stage.perception or file.perception, stage.reasoning or file.reasoning)
        overrides = {**file.overrides, **stage.overrides}
        stage_location = f"{location}, stage {n}" if len(file.stages) > 1 else location
        for level in ("perception", "reasoning"):
            if level in overrides:
                raise UsageError(f"{stage_location}: {level} is a field of the stage, not an override")
        try:
            game = make_game(file.game, *levels, **overrides)
        except UsageError as error:
            raise UsageError(f"{stage_location}: {error}") from None
        name = (stage.name or str(n)) if file.stages else None
        stages.append(Stage(name, game, file.at_least if stage.at_least is None else stage.at_least))
    return Entry(file, tuple(stages))


def _stage_at(entry: Entry, count: int) -> int:
    return bisect_right(entry.begins or (0,), count) - 1


def _measured(measure: Measure, turns: Sequence[TurnRecord]) -> float:
    if measure == "score":  # computed from the turns, so that training and evaluation agree exactly
        return math.fsum(turn.reward.game for turn in turns)
    values = [turn.reward.total if measure == "reward" else turn.outcome == Outcome.PLAYED for turn in turns]
    return math.fsum(values) / len(values) if values else 0.0


# Timetable of training ------------------------------------------------------------------------------------------------

HEADER = ("game", "stage", "first step", "steps", "states")


def describe(curriculum: Curriculum, batch_size: int, steps: int, max_turns: int) -> list[str]:
    """Return a timetable of the stages in training, and warnings, as lines; empty if no game has several stages.

    In a mixture, numbers are expected values, because games are drawn at random.

    Args:
        curriculum: The curriculum.
        batch_size: Number of initial states in a step.
        steps: Number of training steps.
        max_turns: Turn limit of an episode; 1 for single responses.
    """
    table: list[tuple[str, ...]] = [HEADER]
    warnings, advice = list[str](), list[str]()
    total = sum(entry.file.weight for entry in curriculum.entries)
    for entry in curriculum.entries:
        if len(entry.stages) > 1:
            for row, warning in _timetable(entry, batch_size * entry.file.weight / total, steps):
                table.append(row)
                warnings += [warning] if warning else []
        game = entry.stages[0].game
        if max_turns == 1 and entry.begins is None and entry.file.measure == "score" and not isinstance(game, Task):
            advice.append(f"{game.name} advances by the score of a single response: raise max_turns for whole episodes")
    if len(table) == 1:
        return []
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table)
    title = f"schedule of the curriculum with {batch_size:,} states per step:"
    return [title, *lines, *(f"warning: {note}" for note in (*warnings, *advice))]


def _timetable(entry: Entry, per_step: float, steps: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the table row of each stage, and a warning or an empty string; `per_step` is its states in a batch."""
    by_success, game = entry.begins is None, entry.stages[0].game.name
    scale = 1 if entry.file.by == "step" else per_step
    begins = [n / scale for n in entry.begins or (0, entry.file.window or 1)]
    for number, stage in enumerate(entry.stages):
        first_step = None if by_success and number else int(begins[number]) + 1
        row = (game, stage.name or "", "by success" if first_step is None else f"{first_step:,}")
        warning, lasts = "", ("to the end", "to the end")
        if number + 1 < len(entry.stages):
            length = math.ceil(begins[1]) if by_success else begins[number + 1] - begins[number]
            prefix = "at least " if by_success else ""
            lasts = (f"{prefix}{round(length, 1):,.10g}", f"{prefix}{round(length * per_step, 1):,.10g}")
            if length < 1:
                states = f"{length * per_step:,.10g}"
                warning = f"stage {stage.name!r} of {game} has fewer states ({states}) than a batch ({per_step:,.5g})"
        if first_step is not None and first_step > steps:
            warning = f"stage {stage.name!r} of {game} begins at step {first_step:,}, but training ends after {steps:,}"
        yield (*row, *lasts), warning
