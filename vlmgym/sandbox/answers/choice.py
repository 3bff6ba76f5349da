"""Answers that choose one of several names or numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from gymnasium import spaces

from vlmgym.errors import IllegalAction, ParseError, UsageError, short_repr, truncate
from vlmgym.sandbox.answers.base import Answer, is_int, unreadable, word_answer

DIRECTIONS = ("up", "right", "down", "left")
WAY = f"(?:{'|'.join(DIRECTIONS)})"
"""Regular expression of a direction."""
COMPASS = ("north", "east", "south", "west")
"""Names of `DIRECTIONS` on a map."""
STEPS: Sequence[tuple[int, int]] = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Change of row and column for each of `DIRECTIONS`."""


class Choice(Answer[int]):
    """One of several names, such as `true` and `false`; an action is the index of a name.

    Reads names in any case, optionally after one of `verbs`. In `vlmgym play`, the first letter of a name plays it.
    """

    def __init__(
        self, names: Sequence[str], verbs: Sequence[str] = (), others: Mapping[str, str] | None = None, form: str = ""
    ) -> None:
        """Create the kind of answer.

        Args:
            names: Names of the actions 0, 1, ..., in lower case.
            verbs: Verbs that may precede a name.
            others: Other accepted spellings, with their names.
            form: The names as in prompts; by default `up, down or left`.
        """
        self.names, self.verbs, self.others = tuple(names), verbs, others or {}
        self.form = form or f"{', '.join(names[:-1])} or {names[-1]}"

    @cached_property
    def space(self) -> spaces.Discrete[Any]:
        """One action per name."""
        return spaces.Discrete(len(self.names))

    def parse(self, text: str) -> int:
        word = word_answer(text, self.verbs)
        word = self.others.get(word, word)
        if word not in self.names:
            raise ParseError(f"the answer must be {self.form}, got {truncate(word, 40)!r}")
        return self.names.index(word)

    def format(self, action: int) -> str:
        if not is_int(action) or action not in self.ranges[0]:
            accepted = ", ".join(f"{number} ({name})" for number, name in enumerate(self.names))
            raise UsageError(f"an action must be one of {accepted}, got {short_repr(action)}")
        return self.names[action]

    def key(self, key: str) -> int | None:
        word = next((word for word in (*self.names, *self.others) if word.startswith(key)), "")
        return self.names.index(self.others.get(word, word)) if word and len(key) == 1 else None

    def check(self, action: object) -> None:
        """Raise `IllegalAction`, for `Game.step`, unless an action is the index of a name."""
        if not (is_int(action) and action in self.ranges[0]):
            (first, *others) = enumerate(self.names)
            accepted = ", ".join([f"{first[0]} is {first[1]}", *(f"{number} {name}" for number, name in others)])
            raise IllegalAction(f"{short_repr(action)} is not an action: {accepted}")


class Directions(Choice):
    """One of four directions, by name or number: `left`, `3`, `3 (left)`; the key with the name plays it.

    Reads other numbers too, which `Game.step` rejects.
    """

    def __init__(self, verbs: Sequence[str] = ("move", "go")) -> None:
        super().__init__(DIRECTIONS, verbs)

    @property
    def sentence(self) -> str:
        """`0 or up, 1 or down`."""
        return ", ".join(f"{number} or {name}" for number, name in enumerate(self.names))

    def parse(self, text: str) -> int:
        word = word_answer(text, self.verbs)
        word = self._numbered.get(word, word)
        if word in self.names:
            return self.names.index(word)
        if word.isascii() and word.isdigit() and len(word) <= 4:
            return int(word)
        raise unreadable(word, f"one of {', '.join([*map(str, self.ranges[0]), *self.names])}")

    def key(self, key: str) -> int | None:
        return self.names.index(key) if key in self.names else None

    @cached_property
    def _numbered(self) -> Mapping[str, str]:
        """Names, keyed by accepted spellings that combine number and name."""
        return {
            form.format(number, name): name
            for number, name in enumerate(self.names)
            for form in ("{} or {}", "{}: {}", "{} ({})", "{1} ({0})")
        }


class Number(Answer[int]):
    """A number of a range; an action is the number, without the configured `origin` if numbers include it."""

    def __init__(
        self, values: Callable[[Any], range], form: str = "number", verbs: Sequence[str] = (), from_origin: bool = False
    ) -> None:
        """Create the kind of answer.

        Args:
            values: Function that returns the range of actions for a config.
            form: The number as in prompts, e.g. `the number of a column`.
            verbs: Words that may precede the number.
            from_origin: Numbers in answers are actions plus `config.origin`.
        """
        self.values, self.form, self.verbs, self.from_origin = values, form, verbs, from_origin

    @property
    def origin(self) -> int:
        """Difference between a number as written and its action."""
        return int(self.config.origin) if self.from_origin else 0

    @cached_property
    def space(self) -> spaces.Discrete[Any]:
        """One action per number."""
        values = self.values(self.config)
        return spaces.Discrete(len(values), start=values[0])

    def parse(self, text: str) -> int:
        word = word_answer(text, self.verbs)
        if word.isascii() and word.isdigit() and len(word) <= 4:
            return int(word) - self.origin
        raise unreadable(word, f"{self.form} like {self.format(self.ranges[0][0])}" if self.from_origin else "a number")

    def format(self, action: int) -> str:
        return str(action + self.origin)

    def key(self, key: str) -> int | None:
        action = int(key) - self.origin if key in tuple("0123456789") else -1
        return action if action in self.ranges[0] else None

    def check(self, action: object) -> None:
        """Raise `IllegalAction`, for `Game.step`, unless an action is in the range."""
        if not is_int(action) or action not in self.ranges[0]:
            number = self.format(action) if is_int(action) else short_repr(action)  # type: ignore[arg-type]
            first, last = self.format(self.ranges[0][0]), self.format(self.ranges[0][-1])
            raise IllegalAction(f"{number} is not an action: numbers are {first} to {last}")


def neighbour(cell: tuple[int, int], action: int) -> tuple[int, int]:
    """Row and column of a cell's neighbour; `action` is the index of the direction in `DIRECTIONS`."""
    return cell[0] + STEPS[action][0], cell[1] + STEPS[action][1]


@cache
def neighbours(rows: int, columns: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """List the neighbours of each cell of a board; cells are indices, counted row by row.

    Returns:
        For each cell, pairs of a direction (index in `DIRECTIONS`) and the neighbouring cell in that direction.
    """
    table = []
    for cell in range(rows * columns):
        cells = [(action, neighbour(divmod(cell, columns), action)) for action in range(4)]
        table.append(tuple((action, r * columns + c) for action, (r, c) in cells if 0 <= r < rows and 0 <= c < columns))
    return tuple(table)
