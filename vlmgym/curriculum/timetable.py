"""Timetable of a curriculum in training: first step, steps and initial states of each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from vlmgym.curriculum.schedule import Curriculum, Entry
from vlmgym.sandbox.core.task import Task

HEADER = ("game", "stage", "first step", "steps", "states")


@dataclass(frozen=True, slots=True)
class StageTime:
    """Duration of a stage in training. In a mixture, numbers are expected values, because games are drawn at random.

    Attributes:
        game: Name of the game.
        stage: Name of the stage.
        first_step: Step at which the stage begins, counted from 1; None if that depends on success.
        steps: Number of steps, possibly a fraction; the minimum if the stage advances by success; None if the stage
            lasts to the end of training.
        per_step: Number of initial states of this game in a batch.
        by_success: True if the entry advances by success.
    """

    game: str
    stage: str
    first_step: int | None
    steps: float | None
    per_step: float
    by_success: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of a table row, in the columns of `HEADER`."""
        first = "by success" if self.first_step is None else f"{self.first_step:,}"
        if self.steps is None:
            return self.game, self.stage, first, "to the end", "to the end"
        least = "at least " if self.by_success else ""
        lasts = (self.steps, self.steps * self.per_step)
        return self.game, self.stage, first, *(f"{least}{round(last, 1):,.10g}" for last in lasts)


def timetable(curriculum: Curriculum, batch_size: int) -> list[StageTime]:
    """Compute the timetable of the entries with several stages, for batches of `batch_size` initial states."""
    total = sum(entry.weight for entry in curriculum.entries)
    return [
        time
        for entry in curriculum.entries
        if len(entry.stages) > 1
        for time in _times(entry, batch_size * entry.weight / total)
    ]


def warnings(times: list[StageTime], steps: int) -> Iterator[str]:
    """Yield a warning for each stage that is shorter than a batch or would begin after the last of `steps` steps."""
    for time in times:
        name = f"stage {time.stage!r} of {time.game}"
        if time.first_step is not None and time.first_step > steps:
            yield f"{name} begins at step {time.first_step:,}, but training ends after {steps:,}"
        elif time.steps is not None and time.steps < 1:
            states = time.steps * time.per_step
            yield f"{name} has fewer states ({states:,.10g}) than a batch ({time.per_step:,.5g})"


def describe(curriculum: Curriculum, batch_size: int, steps: int, max_turns: int) -> list[str]:
    """Return the timetable and warnings of a training run as lines; empty if no game has several stages."""
    if not (times := timetable(curriculum, batch_size)):
        return []
    notes = list(warnings(times, steps))
    for entry in curriculum.entries:
        game = entry.stages[0].game
        if max_turns == 1 and entry.begins is None and entry.measure == "score" and not isinstance(game, Task):
            notes.append(f"{game.name} advances by the score of a single response: raise max_turns for whole episodes")
    title, table = f"schedule of the curriculum with {batch_size:,} states per step:", [time.cells for time in times]
    return [title, *_aligned([HEADER, *table]), *(f"warning: {note}" for note in notes)]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def _times(entry: Entry, per_step: float) -> Iterator[StageTime]:
    for number, stage in enumerate(entry.stages):
        game, name = stage.game.name, stage.name or ""
        last = number + 1 == len(entry.stages)
        if entry.begins is None:
            least = None if last else ceil(entry.window / per_step)
            yield StageTime(game, name, None if number else 1, least, per_step, True)
        else:
            scale = 1 if entry.by == "step" else per_step
            begin = entry.begins[number] / scale
            steps = None if last else entry.begins[number + 1] / scale - begin
            yield StageTime(game, name, int(begin) + 1, steps, per_step, False)
