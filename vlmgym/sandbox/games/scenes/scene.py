"""Scenes of coloured shapes, and spatial relations between their objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

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
"""Direction of the named object from all others of its group."""
MIN_OFFSET = 50
"""Smallest distance between centres for which a relation counts as unambiguous, in thousandths of the image's side."""


class Kind(NamedTuple):
    """A kind of object: size, colour and shape."""

    size: Size
    colour: str
    shape: str

    def replace(self, **values: Any) -> Kind:
        """Replace attributes by name."""
        return self._replace(**values)


@dataclass(frozen=True, slots=True)
class SceneObject:
    """An object with its centre from the top left corner, in thousandths of the image's side.

    `angle` is in degrees, counter-clockwise.
    """

    size: Size
    colour: str
    shape: str
    x: int
    y: int
    angle: int = 0

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
