"""Base class of answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy, deepcopy
from functools import cached_property
from operator import contains
from typing import Any, Generic, TypeVar

import numpy as np
from gymnasium import spaces

from vlmgym.errors import IllegalAction, UsageError, short_repr

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

    def sample(self, rng: np.random.Generator) -> ActionT:
        """Sample an action from the whole space, including illegal ones; uniformly if the space is discrete."""
        space = self.space
        if isinstance(space, spaces.Discrete):
            value: Any = space.start + rng.integers(space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            value = space.start + rng.integers(space.nvec)
        else:
            space = deepcopy(space)  # sampling mutates a space
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
            fits = isinstance(plain, str)
        elif isinstance(space, spaces.Discrete):
            fits = is_int(plain) and plain in self.ranges[0]
        elif isinstance(space, spaces.MultiDiscrete):
            plain = tuple(plain) if isinstance(plain, list | tuple) else ()
            fits = len(plain) == space.nvec.size and all(map(is_int, plain))
        else:
            fits = space.contains(data)
        if not fits:
            raise self.invalid(data)
        return plain

    @cached_property
    def ranges(self) -> tuple[range, ...]:
        """Range of each number of an action; empty if actions are strings."""
        return value_ranges(self.space)

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
