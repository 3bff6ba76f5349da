"""Scenes of coloured shapes: objects, their relations, and selectors that describe them by attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from vlmgym.sandbox.games.tiles import COLOUR_NAMES, SHAPE_NAMES

Size = Literal["small", "large"]
Attribute = Literal["size", "colour", "shape"]
Direction = Literal["to the left of", "to the right of", "above", "below"]

RADII: dict[Size, int] = {"small": 52, "large": 98}
"""Object radius by size, in thousandths of the image's side."""
SIZES: tuple[Size, ...] = ("small", "large")
ATTRIBUTES: tuple[Attribute, ...] = ("size", "colour", "shape")
DIRECTIONS: tuple[Direction, ...] = ("to the left of", "to the right of", "above", "below")
SUPERLATIVES: dict[str, Direction] = {
    "leftmost": "to the left of",
    "rightmost": "to the right of",
    "topmost": "above",
    "bottommost": "below",
}
"""Direction in which the object named by a superlative lies, as seen from every other object in its group."""
MIN_OFFSET = 50
"""Minimum distance between centres along an axis for an unambiguous relation, in thousandths of the image's side."""


class Kind(NamedTuple):
    """A kind of object: size, colour and shape."""

    size: Size
    colour: str
    shape: str

    def replace(self, **values: Any) -> Kind:
        """Return a copy with the given attributes replaced."""
        return self._replace(**values)


@dataclass(frozen=True, slots=True)
class SceneObject:
    """An object and its centre, measured from the top left corner in thousandths of the image's side.

    `angle` is in degrees, counter-clockwise.
    """

    size: Size
    colour: str
    shape: str
    x: Annotated[int, Field(ge=0, le=1000)]
    y: Annotated[int, Field(ge=0, le=1000)]
    angle: Annotated[int, Field(ge=-180, le=180)] = 0

    @property
    def kind(self) -> Kind:
        """Size, colour and shape."""
        return Kind(self.size, self.colour, self.shape)


Scene = tuple[SceneObject, ...]
"""Objects from back to front."""


class Vocabulary(NamedTuple):
    """The colours and shapes in use."""

    colours: tuple[str, ...]
    shapes: tuple[str, ...]

    @classmethod
    def of(cls, colours: int, shapes: int) -> Vocabulary:
        """Take the first `colours` colours and `shapes` shapes."""
        return cls(COLOUR_NAMES[:colours], SHAPE_NAMES[:shapes])

    def values(self, attribute: Attribute) -> tuple[str, ...]:
        """Possible values of an attribute."""
        return {"size": SIZES, "colour": self.colours, "shape": self.shapes}[attribute]

    def random_kind(self, rng: np.random.Generator) -> Kind:
        """Sample a kind uniformly."""
        return Kind(pick(rng, SIZES), pick(rng, self.colours), pick(rng, self.shapes))


T = TypeVar("T")


def pick(rng: np.random.Generator, values: Sequence[T]) -> T:
    """Choose a value uniformly, faster than `rng.choice`."""
    return values[int(rng.integers(len(values)))]


def offset(one: SceneObject, direction: Direction, other: SceneObject) -> int:
    """Distance of `one` from `other` in a direction, in thousandths; negative on the opposite side."""
    if direction in ("to the left of", "to the right of"):
        return other.x - one.x if direction == "to the left of" else one.x - other.x
    return other.y - one.y if direction == "above" else one.y - other.y


def is_unambiguous(one: SceneObject, direction: Direction, other: SceneObject) -> bool:
    """True if the objects are far enough apart along the axis of a direction, on either side."""
    return abs(offset(one, direction, other)) >= MIN_OFFSET


def is_in_direction(one: SceneObject, direction: Direction, other: SceneObject) -> bool:
    """True if `one` is unambiguously in a direction from `other`."""
    return offset(one, direction, other) >= MIN_OFFSET


NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
"""Number words in statements."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A description of objects by their attributes; None matches any value."""

    size: Size | None = None
    colour: str | None = None
    shape: str | None = None

    @classmethod
    def random(
        cls, rng: np.random.Generator, vocabulary: Vocabulary, count: int, among: Sequence[Attribute] = ATTRIBUTES
    ) -> Selector:
        """Sample a selector with `count` of the attributes in `among`."""
        chosen: dict[str, Any] = {
            among[int(i)]: pick(rng, vocabulary.values(among[int(i)]))
            for i in sorted(rng.permutation(len(among))[:count])
        }
        return cls(**chosen)

    @property
    def attributes(self) -> dict[Attribute, str]:
        """The attributes that are not None."""
        return {name: value for name in ATTRIBUTES if (value := getattr(self, name)) is not None}

    def matches(self, item: Kind | SceneObject) -> bool:
        """True if an object has all attributes of the selector."""
        return all(getattr(item, name) == value for name, value in self.attributes.items())

    def is_disjoint(self, other: Selector) -> bool:
        """True if no object matches both selectors."""
        return any(other.attributes.get(name, value) != value for name, value in self.attributes.items())

    @property
    def singular(self) -> str:
        """`large red circle`, or `large red object` without a shape."""
        return " ".join([*filter(None, (self.size, self.colour)), self.shape or "object"])

    @property
    def plural(self) -> str:
        """`large red circles`."""
        return self.singular + ("es" if self.shape == "cross" else "s")

    @property
    def with_article(self) -> str:
        """`a large red circle`, `an object`."""
        return f"{'an' if self.singular[0] in 'aeiou' else 'a'} {self.singular}"

    def counted(self, count: int) -> str:
        """`two red circles`, `no red circles`, `one red circle`."""
        return f"{NUMBERS[count]} {self.singular if count == 1 else self.plural}"

    def random_kinds(self, rng: np.random.Generator, vocabulary: Vocabulary, count: int) -> list[Kind]:
        """Sample kinds that match the selector."""
        return [vocabulary.random_kind(rng).replace(**self.attributes) for _ in range(count)]

    def near_miss(self, rng: np.random.Generator, vocabulary: Vocabulary) -> Kind:
        """Sample a kind that matches all attributes of the selector except one."""
        attribute = pick(rng, list(self.attributes))
        others = [value for value in vocabulary.values(attribute) if value != self.attributes[attribute]]
        changes: dict[str, Any] = {attribute: pick(rng, others)}
        return replace(self, **changes).random_kinds(rng, vocabulary, 1)[0]


def random_disjoint_pair(
    rng: np.random.Generator, vocabulary: Vocabulary, attributes: int
) -> tuple[Selector, Selector]:
    """Sample two disjoint selectors with 1 to `attributes` attributes each; at least one kind matches neither."""
    kinds = [Kind(*values) for values in product(*map(vocabulary.values, ATTRIBUTES))]  # type: ignore[arg-type]
    while True:
        one, other = (Selector.random(rng, vocabulary, int(rng.integers(1, attributes + 1))) for _ in range(2))
        if one.is_disjoint(other) and not all(one.matches(kind) or other.matches(kind) for kind in kinds):
            return one, other


def random_distractors(
    rng: np.random.Generator, vocabulary: Vocabulary, avoided: Sequence[Selector], count: int
) -> list[Kind]:
    """Sample kinds that match none of the selectors in `avoided`, about half of them near misses.

    The vocabulary must contain such a kind, or the search never ends.
    """
    found: list[Kind] = []
    while len(found) < count:
        near = rng.random() < 0.5
        kind = pick(rng, avoided).near_miss(rng, vocabulary) if near else vocabulary.random_kind(rng)
        if not any(selector.matches(kind) for selector in avoided):
            found.append(kind)
    return found
