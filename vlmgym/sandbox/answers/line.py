"""Answers of one line of text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction, ParseError, truncate
from vlmgym.sandbox.answers.base import Answer, unwrap

_REFUSED = ("Cc", "Cs")
"""Unicode categories of control characters and surrogates."""


class Line(Answer[str]):
    """One line of text; only markup around the whole line is removed."""

    def __init__(
        self, form: str, guesses: Callable[[Any], tuple[Sequence[str], int]], longest: int = 200, noun: str = "answer"
    ) -> None:
        """Create the kind of answer.

        Args:
            form: The line as in prompts, e.g. `your answer`.
            guesses: Function that returns the words of random answers for a config, and the maximum number of words in
                one answer.
            longest: Maximum number of characters.
            noun: Name of an answer in messages.
        """
        self.form, self.guesses, self.longest, self.noun = form, guesses, longest, noun

    @cached_property
    def space(self) -> LineSpace:
        """Space of lines, whose samples consist of words from `guesses`."""
        return LineSpace(self.longest, *self.guesses(self.config))

    def parse(self, text: str) -> str:
        line = unwrap(text).strip()
        if (fault := self.space.fault(line)) is not None:
            raise ParseError(self._wrong(line, fault))
        return line

    def format(self, action: str) -> str:
        return str(action)

    def check(self, action: object) -> None:
        """Raise `IllegalAction`, for `Game.step`, unless an action is a valid line."""
        if (fault := self.space.fault(action)) is not None:
            raise IllegalAction(self._wrong(action, fault))

    def _wrong(self, text: object, fault: str) -> str:
        return f"the {self.noun} {truncate(str(text), 40)!r} {fault}"


class LineSpace(spaces.Text):
    """One line of text without surrounding whitespace. Samples are comma-separated words from a list.

    Excludes line breaks, control characters other than tab, and lone surrogates.
    """

    def __init__(
        self, longest: int, words: Sequence[str], max_words: int = 1, seed: int | np.random.Generator | None = None
    ) -> None:
        """Create a space of lines of up to `longest` characters, whose samples contain up to `max_words` of `words`."""
        super().__init__(longest, min_length=1, seed=seed)
        self.words, self.max_words = tuple(words), min(max_words, len(words))

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Sample distinct words uniformly; their number is uniform from 1 to `max_words`."""
        count = int(self.np_random.integers(1, self.max_words + 1))
        return ", ".join(self.words[int(i)] for i in self.np_random.choice(len(self.words), count, replace=False))

    def contains(self, x: Any) -> bool:
        """Return True for a valid line."""
        return self.fault(x) is None

    def fault(self, x: Any) -> str | None:
        """Return why a value is not a valid line, as a predicate ("is empty"), or None if it is."""
        if not isinstance(x, str):
            return "is not a string"
        if not x:
            return "is empty"
        if x != x.strip():
            return "has surrounding whitespace"
        if len(x) > self.max_length:
            return f"has {len(x):,} characters; at most {self.max_length:,} are allowed"
        if len(x.splitlines()) > 1:
            return "has more than one line"
        rejected = (character for character in x if character != "\t" and unicodedata.category(character) in _REFUSED)
        return next((f"contains the character {character!r}, which is not allowed" for character in rejected), None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LineSpace):
            return False
        return (self.max_length, self.words, self.max_words) == (other.max_length, other.words, other.max_words)

    def __repr__(self) -> str:
        return f"LineSpace({self.max_length})"
