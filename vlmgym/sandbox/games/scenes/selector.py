"""Words for objects by their look, such as `large red circles`, and kinds of objects that fit them or do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from vlmgym.sandbox.games.scenes.scene import ATTRIBUTES, Attribute, Kind, Size, Thing, Vocabulary, pick

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
"""How a statement says how many."""


@dataclass(frozen=True, slots=True)
class Selector:
    """What is said of an object's look; None where nothing is said."""

    size: Size | None = None
    colour: str | None = None
    shape: str | None = None

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        vocabulary: Vocabulary,
        count: int,
        among: Sequence[Attribute] = ATTRIBUTES,
    ) -> Selector:
        """A selector that says so many of the attributes."""
        chosen: dict[str, Any] = {
            among[int(i)]: pick(rng, vocabulary.values(among[int(i)]))
            for i in sorted(rng.permutation(len(among))[:count])
        }
        return cls(**chosen)

    @property
    def said(self) -> dict[Attribute, str]:
        """The values by attribute."""
        return {name: value for name in ATTRIBUTES if (value := getattr(self, name)) is not None}

    def fits(self, thing: Kind | Thing) -> bool:
        """Whether an object is one of those that are meant."""
        return all(getattr(thing, name) == value for name, value in self.said.items())

    def excludes(self, other: Selector) -> bool:
        """Whether no object fits both."""
        return any(other.said.get(name, value) != value for name, value in self.said.items())

    @property
    def one(self) -> str:
        """`large red circle`; without a shape `large red object`."""
        return " ".join([*filter(None, (self.size, self.colour)), self.shape or "object"])

    @property
    def many(self) -> str:
        """`large red circles`."""
        return self.one + ("es" if self.shape == "cross" else "s")

    @property
    def a_one(self) -> str:
        """`a large red circle`, `an object`."""
        return f"{'an' if self.one[0] in 'aeiou' else 'a'} {self.one}"

    def counted(self, count: int) -> str:
        """`two red circles`, `no red circles`, `one red circle`."""
        return f"{NUMBERS[count]} {self.one if count == 1 else self.many}"

    def kinds(self, rng: np.random.Generator, vocabulary: Vocabulary, count: int) -> list[Kind]:
        """Kinds that fit, by chance in what is not said."""
        return [vocabulary.random_kind(rng).but(**self.said) for _ in range(count)]

    def near_miss(self, rng: np.random.Generator, vocabulary: Vocabulary) -> Kind:
        """A kind that differs from one that fits in a single attribute that is said."""
        attribute = pick(rng, list(self.said))
        others = [value for value in vocabulary.values(attribute) if value != self.said[attribute]]
        changes: dict[str, Any] = {attribute: pick(rng, others)}
        return replace(self, **changes).kinds(rng, vocabulary, 1)[0]


def exclusive_pair(rng: np.random.Generator, vocabulary: Vocabulary, attributes: int) -> tuple[Selector, Selector]:
    """Two selectors that no object fits both, and some object fits neither, each saying at most so many attributes."""
    kinds = [Kind(*values) for values in product(*map(vocabulary.values, ATTRIBUTES))]  # type: ignore[arg-type]
    while True:
        one, other = (Selector.random(rng, vocabulary, int(rng.integers(1, attributes + 1))) for _ in range(2))
        if one.excludes(other) and not all(one.fits(kind) or other.fits(kind) for kind in kinds):
            return one, other


def misses(rng: np.random.Generator, vocabulary: Vocabulary, avoided: Sequence[Selector], count: int) -> list[Kind]:
    """Kinds that fit none of the selectors; half of them nearly fit one.

    Args:
        rng: Chance.
        vocabulary: Colours and shapes.
        avoided: At least one selector, each saying something; together they leave some kind.
        count: How many.
    """
    found: list[Kind] = []
    while len(found) < count:
        near = rng.random() < 0.5
        kind = pick(rng, avoided).near_miss(rng, vocabulary) if near else vocabulary.random_kind(rng)
        if not any(selector.fits(kind) for selector in avoided):
            found.append(kind)
    return found
