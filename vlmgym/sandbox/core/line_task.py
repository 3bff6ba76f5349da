"""Tasks whose answer is one line of free text."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

from vlmgym.errors import IllegalAction, ParseError, truncate
from vlmgym.sandbox.core.spaces import LineSpace
from vlmgym.sandbox.core.task import Task, TaskStateT


class LineTask(Task[TaskStateT, str]):
    """A task whose answer is one line of at most `longest_answer` characters.

    Subclasses implement `guesses` and the methods of `Task` other than those about actions; `score` calls `check_line`.
    """

    answer_noun: ClassVar[str] = "answer"
    """Name of an answer in messages."""

    @abstractmethod
    def guesses(self) -> tuple[tuple[str, ...], int]:
        """Words for random answers, and the maximum number of them in one answer."""

    @cached_property
    def action_space(self) -> LineSpace:
        """Space of lines; samples are made of the words of `guesses`."""
        return LineSpace(self.longest_answer, *self.guesses())

    def parse_answer(self, text: str) -> str:
        """Strip surrounding whitespace and check the line.

        Raises:
            ParseError: The line is empty or too long, or has line breaks or control characters.
        """
        line = text.strip()
        if (fault := self.action_space.fault(line)) is not None:
            raise ParseError(self._wrong(line, fault))
        return line

    def format(self, action: str) -> str:
        """Return the line unchanged."""
        return action

    def check_line(self, action: str) -> None:
        """Check that an action is a valid line.

        Raises:
            IllegalAction: It is empty or too long, or has line breaks or control characters.
        """
        if (fault := self.action_space.fault(action)) is not None:
            raise IllegalAction(self._wrong(action, fault))

    def _wrong(self, text: str, fault: str) -> str:
        return f"the {self.answer_noun} {truncate(str(text), 40)!r} {fault}"
