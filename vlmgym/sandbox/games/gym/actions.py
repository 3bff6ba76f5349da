"""Finite list of named actions for an environment."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from string import ascii_letters, digits
from typing import Any

import numpy as np
from gymnasium import spaces

from vlmgym.errors import ParseError, StateError, UsageError, truncate
from vlmgym.sandbox.answers.base import Answer, value_ranges, word_answer

Action = int | tuple[int, ...]

CODES = digits + ascii_letters + "-_"
"""Characters that encode actions in states."""
MOST_ACTIONS = len(CODES) ** 2
"""Maximum number of actions: 4,096."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(\.[0-9]{0,9})?", re.ASCII)


class Actions(Answer[Action]):
    """Actions of a game that plays an environment."""

    def __init__(
        self,
        space: spaces.Discrete[Any] | spaces.MultiDiscrete,
        names: tuple[tuple[str, ...], ...],
        to_env: Callable[[Action], Any],
        keys: Mapping[str, str],
    ) -> None:
        """Create the actions.

        Args:
            space: Action space of the game.
            names: Names of the values of each dimension, in the order of the values.
            to_env: Converts an action of the game to one of the environment.
            keys: Maps keys to the names of the actions that they play; other keys play the action of the same name.
        """
        self._space, self.names, self.to_env, self.keys = space, names, to_env, keys
        self.form = "action" if len(names) == 1 else ", ".join(["value"] * len(names))

    @property
    def space(self) -> spaces.Discrete[Any] | spaces.MultiDiscrete:
        """Action space of the game."""
        return self._space

    @property
    def sentence(self) -> str:
        """The possible answers, for prompts."""
        if len(self.names) == 1:
            return ", ".join(self.names[0])
        lists = "; ".join(", ".join(names) for names in self.names)
        return f"{len(self.names)} values separated by commas, one from each of these lists: {lists}"

    @cached_property
    def all(self) -> tuple[Action, ...]:
        """All actions."""
        return tuple(self.ranges[0] if isinstance(self.space, spaces.Discrete) else product(*self.ranges))

    @cached_property
    def codes(self) -> Mapping[Action, str]:
        """Code of each action in states: one character, or two if `CODES` has too few characters."""
        codes = CODES if len(self.all) <= len(CODES) else map("".join, product(CODES, repeat=2))
        return dict(zip(self.all, codes))

    @property
    def code_length(self) -> int:
        """Number of characters in a code."""
        return len(self.codes[self.all[0]])

    def decode(self, text: str) -> Iterator[Action]:
        """Yield the actions that a string of codes stands for; raise `StateError` for an unknown code."""
        for start in range(0, len(text), self.code_length):
            code = text[start : start + self.code_length]
            if code not in self._by_code:
                raise StateError(f"{code!r} is not the code of an action")
            yield self._by_code[code]

    @cached_property
    def _by_code(self) -> Mapping[str, Action]:
        return {code: action for action, code in self.codes.items()}

    def indices(self, action: Action) -> tuple[int, ...]:
        """Return the index of an action's value in each dimension."""
        values = (action,) if isinstance(action, int) else action
        return tuple(value - numbers.start for value, numbers in zip(values, self.ranges))

    def format(self, action: Action) -> str:
        """Format an action as the names of its values, separated by commas."""
        return ", ".join(names[index] for names, index in zip(self.names, self.indices(self.to_action(action))))

    def key(self, key: str) -> Action | None:
        name = self.keys.get(key, key)
        return next((action for action in self.all if self.format(action) == name), None)

    def parse(self, text: str) -> Action:
        """Parse the names of an action; raise `ParseError` for any other text."""
        words = word_answer(text).split(",")
        if len(words) != len(self.names):
            raise ParseError(f"the answer {truncate(text, 40)!r} has {len(words)} values, not {len(self.names)}")
        values = tuple(numbers[_index(word, names)] for numbers, word, names in zip(self.ranges, words, self.names))
        return values[0] if isinstance(self.space, spaces.Discrete) else values


def make_actions(
    env_id: str,
    space: spaces.Space[Any],
    names: Sequence[Sequence[str]],
    meanings: Sequence[str] | None,
    values: int,
    keys: Mapping[str, str],
) -> Actions:
    """Make the actions for the action space of an environment.

    Args:
        env_id: Id of the environment, for error messages.
        space: Action space of the environment.
        names: Names of the values of each dimension; empty for the default names.
        meanings: Names that the environment itself gives to its discrete actions, if any.
        values: Number of evenly spaced values of each dimension of a `Box`.
        keys: See `Actions`.

    Raises:
        UsageError: The space is not supported or has more than `MOST_ACTIONS` actions, or the names do not fit it.
    """
    listed: spaces.Discrete[Any] | spaces.MultiDiscrete
    if isinstance(space, spaces.Discrete) or (isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1):
        listed, default = space, tuple(tuple(map(str, numbers)) for numbers in value_ranges(space))
        if isinstance(space, spaces.Discrete) and meanings is not None and len(set(meanings)) == space.n:
            default = (tuple(map(_clean, meanings)),)

        def to_env(action: Action) -> Any:
            return np.array(action, space.dtype)[()]  # a scalar for Discrete

    elif isinstance(space, spaces.Box) and len(space.shape) == 1 and space.is_bounded():
        ends = zip(space.low.tolist(), space.high.tolist())
        points = [[low + (high - low) * i / (values - 1) for i in range(values)] for low, high in ends]
        default = tuple(tuple(f"{point:.6g}" for point in axis) for axis in points)
        listed = spaces.Discrete(values) if len(points) == 1 else spaces.MultiDiscrete([values] * len(points))

        def to_env(action: Action) -> Any:
            indices = (action,) if isinstance(action, int) else action
            return np.array([axis[index] for axis, index in zip(points, indices)], space.dtype)

    else:
        raise UsageError(
            f"{env_id} has the action space {truncate(str(space), 60)}, but only Discrete, MultiDiscrete and bounded "
            "one-dimensional Box are supported"
        )
    given = tuple(tuple(map(_clean, axis)) for axis in names) or default
    counts = list(map(len, value_ranges(listed)))
    if math.prod(counts) > MOST_ACTIONS:
        raise UsageError(f"{env_id} has {math.prod(counts):,} actions; at most {MOST_ACTIONS:,} are supported")
    if list(map(len, given)) != counts:
        raise UsageError(
            f"{env_id} has {' x '.join(map(str, counts))} actions, but the names given are "
            f"{'; '.join(map(', '.join, given))}"
        )
    for axis in given:
        if len(set(axis)) < len(axis) or not all(axis) or any("," in name for name in axis):
            raise UsageError(f"the names of actions must differ and have no commas, got {'; '.join(axis)}")
    return Actions(listed, given, to_env, keys)


def _index(word: str, names: tuple[str, ...]) -> int:
    name = _clean(word)
    if name not in names and _NUMBER.fullmatch(name):
        name = f"{float(name):.6g}"
    if name not in names:
        raise ParseError(f"the answer {truncate(word.strip(), 40)!r} is not one of {truncate(', '.join(names), 200)}")
    return names.index(name)


def _clean(name: str) -> str:
    return " ".join(name.lower().split())
