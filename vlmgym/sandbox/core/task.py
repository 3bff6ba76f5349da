"""One-turn tasks with built-in questions."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from pydantic import model_validator

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.base import ActionT, is_int, plain
from vlmgym.sandbox.answers.choice import Number
from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core.config import DegradedConfig
from vlmgym.sandbox.core.game import Game, ImageArray, Info, Infos, Metrics, Step, retry
from vlmgym.sandbox.data.rows import RowRef, SkippedRow
from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.degrade import degrade

ANSWERED = "answered"


@dataclass(frozen=True, kw_only=True)
class TaskState:
    """State fields shared by all tasks; subclasses add the question and its solution."""

    answered: bool = False
    """True after the only turn."""
    row: RowRef | None = None
    """Source row in the user's data; None for a built-in question."""
    skipped: tuple[SkippedRow, ...] = ()
    """Bad rows skipped before this one."""


TaskStateT = TypeVar("TaskStateT", bound=TaskState)


class TaskConfig(DegradedConfig):
    """Config fields of every task."""

    @model_validator(mode="after")
    def _check_prompt(self) -> TaskConfig:
        if self.prompt is not None and "{prompt}" not in self.prompt:
            raise ValueError("prompt must contain {prompt}, which inserts the question")
        return self


class Task(Game[TaskStateT, ActionT]):
    """A game of one turn, which ends with any response, even an unparsable one.

    Subclasses set `answer` and implement `generate`, `paint`, `solution` and `score`, and, like every game, `describe`
    and `prompt`. A task that also asks questions about the user's own data is a `DataTask`.
    """

    Config = TaskConfig

    @abstractmethod
    def generate(self, rng: np.random.Generator) -> TaskStateT | None:
        """Generate a question without data and network; None if the attempt failed, see `attempts`."""

    @abstractmethod
    def paint(self, state: TaskStateT) -> Sequence[ImageArray]:
        """Render a generated question without degradation: uint8 arrays of the shapes in `image_shapes`."""

    def canvas(self, background: Colour) -> Canvas:
        """Create a canvas of the image's size whose unit is a thousandth of the image's side, for `paint`."""
        size = self.config.size
        return Canvas(size, size, background, unit=size / 1000)

    def draw(self, state: TaskStateT) -> list[ImageArray]:
        """Render the images with the configured degradation; identical before and after the answer."""
        seed = zlib.crc32(self.to_json(replace(state, answered=False)).encode())
        return [degrade(image, self.config, seed, index) for index, image in enumerate(self.clean_images(state))]

    def clean_images(self, state: TaskStateT) -> Sequence[ImageArray]:
        """Images without degradation."""
        return self.paint(state)

    def draw_into(self, state: TaskStateT, out: Sequence[ImageArray], shown: TaskStateT | None = None) -> None:
        """Render a state, unless it differs from `shown` at most in `answered`, which does not affect the images."""
        if shown is None or replace(shown, answered=state.answered) != state:
            super().draw_into(state, out)

    @abstractmethod
    def solution(self, state: TaskStateT) -> ActionT:
        """Correct answer to the question."""

    @abstractmethod
    def score(self, state: TaskStateT, action: ActionT) -> tuple[float, Info]:
        """Return an answer's reward and facts for `Step.info`; raise `IllegalAction` if the answer is out of range."""

    @property
    def question_count(self) -> int | None:
        """Number of questions; None if there is no end of them."""
        return None

    def start(self, rng: np.random.Generator) -> TaskStateT:
        """Generate a question."""
        return retry(lambda: self.generate(rng), self.attempts, f"question of {self.name} with this config")

    def step(self, state: TaskStateT, action: ActionT, rng: np.random.Generator) -> Step[TaskStateT]:
        """Score the answer and end the episode."""
        reward, info = self.score(state, action)
        return Step(replace(state, answered=True), reward, info)

    def on_invalid(self, state: TaskStateT, rng: np.random.Generator) -> Step[TaskStateT]:
        """End the episode, regardless of the response."""
        return Step(replace(state, answered=True), self.illegal_reward)

    def ended(self, state: TaskStateT) -> str | None:
        """Return `ANSWERED` after the only turn."""
        return ANSWERED if state.answered else None

    def legal_actions(self, state: TaskStateT) -> tuple[ActionT, ...] | None:
        """Return None, or an empty tuple after the answer. Override if answers can be enumerated."""
        return () if state.answered else None

    def best_action(self, state: TaskStateT) -> ActionT | None:
        """Return the correct answer, or None after the only turn."""
        return None if state.answered else self.solution(state)


def accuracy(state: TaskState, infos: Infos, kind: str = "") -> dict[str, float]:
    """Return the metrics `accuracy` and, unless `kind` is empty, `accuracy KIND`, from `correct` in the step's info.

    Invalid responses count as incorrect; an unanswered question has no accuracy.
    """
    if not state.answered:
        return {}
    correct = float(infos[-1].get("correct", 0.0)) if infos else 0.0
    return {"accuracy": correct} | ({f"accuracy {kind}": correct} if kind else {})


VERBS = ("choose", "number", "figure", "ball")
"""Words that may precede the number of a choice."""


@dataclass(frozen=True, kw_only=True)
class ChoiceState(TaskState):
    """State fields of a question whose answer is a number."""

    answer: int


ChoiceStateT = TypeVar("ChoiceStateT", bound=ChoiceState)


class ChoiceTask(Task[ChoiceStateT, int]):
    """A task whose answer is a number, by default from 1 to `config.choices`."""

    answer = Number(lambda config: range(1, config.choices + 1), verbs=VERBS)

    def accepted(self, state: ChoiceStateT) -> range:
        """Range of possible answers; by default, all actions."""
        return self.answer.ranges[0]

    def legal_actions(self, state: ChoiceStateT) -> tuple[int, ...]:
        """List the possible answers; empty after the only turn."""
        return () if state.answered else tuple(self.accepted(state))

    def solution(self, state: ChoiceStateT) -> int:
        """Correct number."""
        return state.answer

    def score(self, state: ChoiceStateT, action: int) -> tuple[float, Info]:
        """Score 1 for the correct number, else 0."""
        accepted = self.accepted(state)
        if not is_int(action) or action not in accepted:
            raise IllegalAction(f"the answer must be {accepted[0]} to {accepted[-1]}, got {action!r}")
        correct = action == state.answer
        return float(correct), {"correct": correct, "truth": state.answer}

    def metrics(self, state: ChoiceStateT, infos: Infos) -> Metrics:
        """Report the accuracy."""
        return accuracy(state, infos)

    def check_state(self, state: ChoiceStateT) -> None:
        """Check that the answer is possible. Overrides must call this."""
        super().check_state(state)
        if state.answer not in self.accepted(state):
            raise StateError(f"{state.answer} is not one of the choices")


class Question(NamedTuple):
    """A question, its only correct answer, and why it is correct."""

    question: str
    answer: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LineState(TaskState):
    """State fields of a question whose answer is a line of text."""

    kind: str
    """Kind of question, for metrics."""
    question: str
    answer: str
    reason: str
    """Why the answer is correct, for `explain`."""


LineStateT = TypeVar("LineStateT", bound=LineState)


class LineTask(Task[LineStateT, str]):
    """A task whose answer is a word, a number or another line of text, with exactly one correct answer.

    `prompt_template` has the field `{question}`.
    """

    answer: Line

    def prompt(self, state: LineStateT) -> str:
        """Prompt with the question."""
        return self.fill_prompt(question=state.question)

    def solution(self, state: LineStateT) -> str:
        """Correct answer."""
        return state.answer

    def is_correct(self, state: LineStateT, action: str) -> bool:
        """Compare an answer with the correct one, regardless of case and markup."""
        return normalised(action) == normalised(state.answer)

    def score(self, state: LineStateT, action: str) -> tuple[float, Info]:
        """Score 1 for a correct answer, else 0."""
        self.answer.check(action)
        correct = self.is_correct(state, action)
        return float(correct), {"correct": correct, "truth": state.answer}

    def explain(self, state: LineStateT, action: str) -> str:
        """Return the reason for the correct answer."""
        return state.reason if action == state.answer else super().explain(state, action)

    def metrics(self, state: LineStateT, infos: Infos) -> Metrics:
        """Report the accuracy, also for the kind of question."""
        return accuracy(state, infos, state.kind)

    def check_state(self, state: LineStateT) -> None:
        """Check that the answer is a line. Overrides must call this."""
        super().check_state(state)
        if (fault := self.answer.space.fault(state.answer)) is not None:
            raise StateError(f"the answer {fault}")


def normalised(answer: str) -> str:
    """Return an answer in lower case with single spaces, without markup and a final full stop."""
    return " ".join(plain(answer).casefold().split())
