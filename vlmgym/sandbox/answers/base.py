"""Base class of answers, and normalisation of their text."""

from __future__ import annotations

import math
import re
import string
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy, deepcopy
from functools import cached_property, lru_cache
from itertools import product
from operator import contains
from typing import Any, Generic, TypeVar

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction, ParseError, UsageError, short_repr, truncate

ActionT = TypeVar("ActionT")
AnswerT = TypeVar("AnswerT", bound="Answer[Any]")


class Answer(ABC, Generic[ActionT]):
    """A kind of answer: the action space of a game, and how its actions are written, read and entered.

    A game has one as its class attribute `answer`; each game object gets a copy for its config. Actions are ints,
    strings or tuples of ints.
    """

    config: Any
    """Config of the game; set by `of`."""
    form: str
    """What to write between `<answer>` and `</answer>`, for prompts."""
    longest: int = 200
    """Maximum number of characters."""
    clicks: int = 0
    """Number of cells to click on in `vlmgym play` to choose an action; see `clicked`."""
    names_points: bool = False
    """True if actions are points of the image."""

    @property
    def sentence(self) -> str:
        """The possible answers, which follow "Actions: " in prompts."""
        return self.form

    def of(self: AnswerT, config: Any) -> AnswerT:
        """Return a copy for a game with this config."""
        answer = copy(self)
        answer.config = config
        return answer

    @property
    @abstractmethod
    def space(self) -> spaces.Space[Any]:
        """Actions as a Gymnasium space, including illegal ones."""

    @abstractmethod
    def parse(self, text: str) -> ActionT:
        """Parse any unambiguous spelling of an action; raise `ParseError`, saying why, for other text."""

    @abstractmethod
    def format(self, action: ActionT) -> str:
        """Write an action as `parse` reads it; raise `UsageError` for other values."""

    def key(self, key: str) -> ActionT | None:
        """Action bound to a key (`up`, `space`) in `vlmgym play`, or None."""
        return None

    def clicked(self, cells: Sequence[tuple[int, int]]) -> ActionT:
        """Action chosen by clicking on `clicks` cells."""
        raise NotImplementedError

    def pointed(self, x: float, y: float) -> ActionT | None:
        """Action chosen by clicking on a point, in fractions of the image's width and height, or None."""
        return None

    def sample(self, rng: np.random.Generator) -> ActionT:
        """Sample an action from the whole space, including illegal ones; uniformly if the space is discrete."""
        space = self.space
        if isinstance(space, spaces.Discrete):
            value: Any = space.start + rng.integers(space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            value = space.start + rng.integers(space.nvec)
        else:
            space = deepcopy(space)  # sampling changes the random state of a space
            space.seed(int(rng.integers(2**31)))
            value = space.sample()
        action: ActionT = self.to_action(value)
        return action

    def to_action(self, value: Any) -> Any:
        """Convert a value of `space` to an action.

        Raises:
            UsageError: The value is not in the space.
        """
        if type(value) is int and isinstance(self.space, spaces.Discrete) and value in self.ranges[0]:
            return value  # fast path for the common case
        action = self.from_data(value)
        if isinstance(self.space, spaces.MultiDiscrete) and not all(map(contains, self.ranges, action)):
            raise self.invalid(value)
        return action

    def from_data(self, data: Any) -> Any:
        """Convert plain data, as read from JSON, to an action.

        Accepts cells outside the board, which answers can name and `Game.step` rejects as illegal.

        Raises:
            UsageError: The data is not an action.
        """
        space = self.space
        plain = data.tolist() if isinstance(data, np.ndarray | np.generic) else data
        if isinstance(space, spaces.Text):
            is_valid = isinstance(plain, str)
        elif isinstance(space, spaces.Discrete):
            is_valid = is_int(plain) and plain in self.ranges[0]
        elif isinstance(space, spaces.MultiDiscrete):
            plain = tuple(plain) if isinstance(plain, list | tuple) else ()
            is_valid = len(plain) == space.nvec.size and all(map(is_int, plain))
        else:
            is_valid = space.contains(data)
        if not is_valid:
            raise self.invalid(data)
        return plain

    @cached_property
    def ranges(self) -> tuple[range, ...]:
        """Range of each number of an action; empty if actions are strings."""
        return value_ranges(self.space)

    def actions(self, max_actions: int) -> list[ActionT] | None:
        """List the action space with illegal actions; None if it is not discrete or has more than `max_actions`."""
        if not self.ranges or math.prod(map(len, self.ranges)) > max_actions:
            return None
        actions: Any = self.ranges[0] if isinstance(self.space, spaces.Discrete) else product(*self.ranges)
        return list(actions)

    def numbers(self, action: object, names: str) -> tuple[int, ...]:
        """Return an action of several ints; raise `IllegalAction`, with the names of the ints, for any other value."""
        count = len(self.ranges)
        if isinstance(action, tuple) and len(action) == count and all(map(is_int, action)):
            return action
        raise IllegalAction(f"{short_repr(action)} is not an action, which is a tuple of {count} ints: {names}")

    def invalid(self, value: object) -> UsageError:
        """Return the error for a value that is not an action."""
        return UsageError(f"an action must be in {self.space}, got {short_repr(value)}")


def value_ranges(space: spaces.Space[Any]) -> tuple[range, ...]:
    """Range of each number in a `Discrete` or `MultiDiscrete` space; empty for other spaces."""
    if isinstance(space, spaces.Discrete):
        return (range(int(space.start), int(space.start + space.n)),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(map(range, space.start.tolist(), (space.start + space.nvec).tolist()))
    return ()


def is_int(value: object) -> bool:
    """True for an int, but not for `True` or `1.0`."""
    return isinstance(value, int) and not isinstance(value, bool)


# Markup ---------------------------------------------------------------------------------------------------------------
#
# Answers are normalised before a game parses them, by stripping markup that cannot change their meaning. Nothing is
# guessed: markup is stripped only if it encloses the whole text, and the parser rejects anything unrecognised. The
# accepted spellings are listed in `docs/protocols.md`.

_SAME = ("```", "``", "`", "***", "**", "*", "___", "__", "_", "$$", "$", '"', "'")
_QUOTES = ("\u201c\u201d", "\u2018\u2019", "\u201e\u201c", "\u00ab\u00bb", "\u300c\u300d")
_BOX = ("<|begin_of_box|>", "<|end_of_box|>")
"""Special tokens that GLM puts around its answer."""
_MARKUP = (*((mark, mark) for mark in _SAME), *map(tuple, _QUOTES), ("\\(", "\\)"), ("\\[", "\\]"), _BOX)
_BRACKETS = (("(", ")"), ("[", "]"))
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n([^`]*)```")
_COMMAND = re.compile(
    r"\\(?:boxed|fbox|mbox|emph|text(?:bf|it|tt|rm|sf)?|math(?:bf|it|tt|rm|sf))"
    r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}"
)
"""LaTeX commands that only frame their content or set its font, unlike `\\cancel`."""
_LABEL = re.compile(r"([*_]{0,2})(?:final )?(?:answer|action|move)(?:\1:|:\1)\s*", re.IGNORECASE | re.ASCII)
_OBJECT = re.compile(r"""\{\s*(["'])(?:answer|action|move)\1\s*:(.*)\}""", re.IGNORECASE | re.ASCII | re.DOTALL)
"""A JSON object whose only field is `answer`, `action` or `move`. An object with more fields also matches, but its
other fields are then part of the answer, which no parser accepts."""
_END = re.compile(r"(?<![.!?\s])\s*\.$|(?<![.!?0-9\s])\s*!$")
"""A final full stop or exclamation mark, but not an ellipsis or a factorial."""
_INVISIBLE = "\u00ad\u200b\u200e\u200f\u2060\ufeff"
"""Zero-width characters: soft hyphen, zero-width space, direction marks, word joiner, byte order mark."""
_BLANKS = _INVISIBLE + "".join(filter(str.isspace, map(chr, range(0x3001))))
_WIDTHS = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(map(ord, set(_BLANKS).difference(string.whitespace)), " "),
    0x3001: ",",
    0x3002: ".",
}
"""Replacements of full-width characters, of spaces outside ASCII and invisible characters, and of the ideographic comma
and full stop."""


def unwrap(text: str) -> str:
    """Strip enclosing whitespace, invisible characters, quotes, and emphasis, code and LaTeX markup."""
    before = None
    while text != before:
        before = text = text.strip(_BLANKS)
        match = _FENCE.fullmatch(text) or _COMMAND.fullmatch(text)
        text = match[1] if match else _peel(text, _MARKUP)
    return text


def narrow(text: str) -> str:
    """Convert full-width characters to ASCII, and other spaces and invisible characters to spaces."""
    return text.translate(_WIDTHS)


@lru_cache(maxsize=256)  # most answers of an action game repeat
def plain(text: str, brackets: bool = False) -> str:
    """Normalise an answer that is not free text.

    Strips everything that `unwrap` strips, a leading label such as `Answer:`, a JSON object with such a label as its
    only key, and a final full stop or exclamation mark; with `brackets`, also brackets around the whole text.
    Full-width characters become ASCII.
    """
    text, before = narrow(text), None
    while text != before:
        before = text
        text = unlabelled(_END.sub("", unwrap(text)))
        if brackets:
            text = _peel(text, _BRACKETS)
    return text


def unlabelled(text: str) -> str:
    """Strip a leading label or an enclosing JSON object."""
    if (match := _OBJECT.fullmatch(text)) is not None:
        return match[2]
    return text[label.end() :] if (label := _LABEL.match(text)) is not None else text


def word_answer(text: str, verbs: Sequence[str] = ()) -> str:
    """Normalise a one-word or numeric answer: lower case, without a leading verb from `verbs`."""
    word = " ".join(plain(text, brackets=True).lower().split())
    verb, _, rest = word.partition(" ")
    return plain(rest, brackets=True) if verb in verbs and rest else word


def unreadable(text: str, expected: str) -> ParseError:
    """Return the error for an unreadable answer; `expected` is a noun phrase such as `a number`."""
    return ParseError(f"the answer {truncate(text, 40)!r} is not {expected}")


def _peel(text: str, pairs: Sequence[tuple[str, ...]]) -> str:
    """Strip the first pair of delimiters that encloses the text and does not occur inside it."""
    for opening, closing in pairs:
        if text.startswith(opening) and text.endswith(closing) and len(text) > len(opening) + len(closing):
            inside = text[len(opening) : -len(closing)]
            if inside.strip() and opening not in inside and closing not in inside:
                return inside
    return text
