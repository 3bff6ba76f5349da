"""Base class for tasks whose answer is one of several numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.base import is_int
from vlmgym.sandbox.answers.choice import Number
from vlmgym.sandbox.core.config import Criterion
from vlmgym.sandbox.core.perception import Part
from vlmgym.sandbox.core.task import Task, TaskState, accuracy

VERBS = ("choose", "number", "figure", "ball")

CHOICES = Criterion(
    "random-legal",
    "legal actions",
    log=True,
    rises=True,
    label="number of choices",
    why="one of which is right; levels are compared by their ratio",
)
"""Calibration criterion for tasks whose number of choices rises with the reasoning level."""


@dataclass(frozen=True, kw_only=True)
class ChoiceState(TaskState):
    """State fields of a question whose answer is a number."""

    answer: int


ChoiceStateT = TypeVar("ChoiceStateT", bound=ChoiceState)


class ChoiceTask(Task[ChoiceStateT, int]):
    """A task whose answer is a number from 1 to `config.choices`; subclasses may override this range in `accepted`."""

    criterion = CHOICES
    answer = Number(lambda config: range(1, config.choices + 1), verbs=VERBS)

    def accepted(self, state: ChoiceStateT) -> range:
        """Range of possible answers."""
        return range(1, self.config.choices + 1)

    def legal_actions(self, state: ChoiceStateT) -> tuple[int, ...]:
        return () if state.answered else tuple(self.accepted(state))

    def solution(self, state: ChoiceStateT) -> int:
        return state.answer

    def score(self, state: ChoiceStateT, action: int) -> tuple[float, Mapping[str, Any]]:
        accepted = self.accepted(state)
        if not is_int(action) or action not in accepted:
            raise IllegalAction(f"the answer must be {accepted[0]} to {accepted[-1]}, got {action!r}")
        correct = action == state.answer
        return float(correct), {"correct": correct, "truth": state.answer}

    def metrics(self, state: ChoiceStateT, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        return {**super().metrics(state, infos), **accuracy(state, infos, "")}

    def part(self, words: str, x: float, y: float, radius: float, image: int = 0) -> Part:
        """Return the square around a point as a `Part`.

        `x`, `y` and `radius` are in pixels before the image is cropped and scaled.
        """
        c, half = self.config, self.config.size / 2
        zoom = c.scale / (1 - c.crop)
        edges = [half + (at - half + reach) * zoom for at in (x, y) for reach in (-radius, radius)]
        left, right, top, bottom = (min(max(round(edge), 0), c.size) for edge in edges)
        return Part(words, left, top, max(1, right - left), max(1, bottom - top), image)

    def check_state(self, state: ChoiceStateT) -> None:
        super().check_state(state)
        if state.answer not in self.accepted(state):
            raise StateError(f"{state.answer} is not one of the choices")
