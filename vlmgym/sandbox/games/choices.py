"""Base class for tasks whose answer is one of several numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.base import is_int
from vlmgym.sandbox.answers.choice import Number
from vlmgym.sandbox.core.task import Task, TaskState, accuracy

VERBS = ("choose", "number", "figure", "ball")


@dataclass(frozen=True, kw_only=True)
class ChoiceState(TaskState):
    """State fields of a question whose answer is a number."""

    answer: int


ChoiceStateT = TypeVar("ChoiceStateT", bound=ChoiceState)


class ChoiceTask(Task[ChoiceStateT, int]):
    """A task whose answer is a number from 1 to `config.choices`; subclasses may override this range in `accepted`."""

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

    def check_state(self, state: ChoiceStateT) -> None:
        super().check_state(state)
        if state.answer not in self.accepted(state):
            raise StateError(f"{state.answer} is not one of the choices")
