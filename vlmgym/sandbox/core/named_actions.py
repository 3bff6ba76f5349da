"""Games whose actions have names, such as four directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, ClassVar

from gymnasium import spaces

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.core.answer_text import unreadable, word_answer
from vlmgym.sandbox.core.game import is_int

DIRECTIONS = ("up", "right", "down", "left")
STEPS: Sequence[tuple[int, int]] = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Change of row and column for each of `DIRECTIONS`."""


def neighbour(cell: tuple[int, int], action: int) -> tuple[int, int]:
    """Row and column of a cell's neighbour; `action` is the index of the direction in `DIRECTIONS`."""
    return cell[0] + STEPS[action][0], cell[1] + STEPS[action][1]


@cache
def neighbours(rows: int, columns: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """List the neighbours of each cell of a board; cells are indices, counted row by row.

    Returns:
        For each cell, pairs of a direction (index in `DIRECTIONS`) and the neighbouring cell in that direction.
    """
    found = []
    for cell in range(rows * columns):
        near = [(action, neighbour(divmod(cell, columns), action)) for action in range(4)]
        found.append(tuple((action, r * columns + c) for action, (r, c) in near if 0 <= r < rows and 0 <= c < columns))
    return tuple(found)


class NamedActions:
    """Mixin for games whose actions are indices into `action_names`; list it before the base class of the game.

    An answer is the name or the index of an action, optionally after one of `verbs`.
    """

    name: ClassVar[str]
    action_names: ClassVar[tuple[str, ...]] = DIRECTIONS
    """Names of the actions 0, 1, ..., one lower-case word each; `vlmgym play` binds each to the key of that name."""
    verbs: ClassVar[tuple[str, ...]] = ("move", "go")
    """Verbs allowed before an action."""

    @cached_property
    def action_space(self) -> spaces.Space[Any]:
        """One action per name."""
        return spaces.Discrete(len(self.action_names))

    def parse_answer(self, text: str) -> int:
        """Parse the name or number of an action."""
        word = text.strip().lower()
        if word in self.action_names:
            return self.action_names.index(word)
        if word.isascii() and word.isdigit() and len(word) <= 4:
            return int(word)
        accepted = ", ".join([*map(str, range(len(self.action_names))), *self.action_names])
        raise unreadable(text, f"one of {accepted}")

    def normalise_answer(self, text: str) -> str:
        """Strip markup and a verb; if the answer has both the number and the name of an action, return the name."""
        word = word_answer(text, self.verbs)
        return self._numbered_names.get(word, word)

    def key_action(self, state: Any, key: str) -> int | None:
        """Action with the same name as the key, or None."""
        return self.action_names.index(key) if key in self.action_names else None

    def check_named(self, action: object) -> None:
        """Raise `IllegalAction` unless an action is an index into `action_names`; for use in `step`."""
        if not (is_int(action) and 0 <= action < len(self.action_names)):  # type: ignore[operator]
            (first, *others) = enumerate(self.action_names)
            known = ", ".join([f"{first[0]} is {first[1]}", *(f"{number} {name}" for number, name in others)])
            raise IllegalAction(f"{action!r} is not an action: {known}")

    @cached_property
    def _numbered_names(self) -> Mapping[str, str]:
        """Names of actions, keyed by accepted spellings that combine number and name."""
        return {
            form.format(number, name): name
            for number, name in enumerate(self.action_names)
            for form in ("{} or {}", "{}: {}", "{} ({})", "{1} ({0})")
        }
