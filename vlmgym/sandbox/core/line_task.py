"""A task whose answer is one line of text, in words of one's own."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

from vlmgym.errors import IllegalAction, ParseError, truncate
from vlmgym.sandbox.core.spaces import LineSpace
from vlmgym.sandbox.core.task import Task, TaskStateT


class LineTask(Task[TaskStateT, str]):
    """A task whose answer is one line of at most `longest_answer` characters.

    A subclass implements what a `Task` does but for actions, and `guesses`; its `score` calls `check_line`.
    """

    answer_noun: ClassVar[str] = "answer"
    """What messages call an answer."""

    @abstractmethod
    def guesses(self) -> tuple[tuple[str, ...], int]:
        """Words that one who has not seen the image may answer with, and how many of them at most."""

    @cached_property
    def action_space(self) -> LineSpace:
        """Lines; samples are of the words of `guesses`."""
        return LineSpace(self.longest_answer, *self.guesses())

    def parse_answer(self, text: str) -> str:
        """One line of text, as it stands but for blanks around it.

        Raises:
            ParseError: It is empty or too long, or has several lines or control characters.
        """
        line = text.strip()
        if (fault := self.action_space.fault(line)) is not None:
            raise ParseError(self._wrong(line, fault))
        return line

    def format(self, action: str) -> str:
        """The line."""
        return action

    def check_line(self, action: str) -> None:
        """Refuse an action that is no such line.

        Raises:
            IllegalAction: It is empty or too long, or has several lines or control characters.
        """
        if (fault := self.action_space.fault(action)) is not None:
            raise IllegalAction(self._wrong(action, fault))

    def _wrong(self, text: str, fault: str) -> str:
        return f"the {self.answer_noun} {truncate(str(text), 40)!r} {fault}"
