"""A scene: coloured shapes that may overlap, each at a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from vlmgym.sandbox.games.tiles.names import COLOUR_NAMES, SHAPE_NAMES

Size = Literal["small", "large"]
Attribute = Literal["size", "colour", "shape"]

RADII: dict[Size, int] = {"small": 52, "large": 98}
"""Radius of the objects of each size in thousandths of the image's side."""
SIZES: tuple[Size, ...] = ("small", "large")
ATTRIBUTES: tuple[Attribute, ...] = ("size", "colour", "shape")


class Kind(NamedTuple):
    """How an object looks, wherever it is."""

    size: Size
    colour: str
    shape: str

    def but(self, **values: Any) -> Kind:
        """The same with other values of some attributes."""
        return self._replace(**values)


@dataclass(frozen=True, slots=True)
class Thing:
    """An object of a scene.

    Attributes:
        size: Small or large, which `RADII` has in numbers.
        colour: A name of `rules.tiles.COLOUR_NAMES`.
        shape: A name of `rules.tiles.SHAPE_NAMES`.
        x: Centre in thousandths of the image's width, from the left.
        y: Centre in thousandths of the image's height, from above.
        angle: Degrees that it is turned by, counter-clockwise.
    """

    size: Size
    colour: str
    shape: str
    x: int
    y: int
    angle: int = 0

    @property
    def kind(self) -> Kind:
        """How it looks."""
        return Kind(self.size, self.colour, self.shape)


Scene = tuple[Thing, ...]
"""Objects from the back to the front."""


class Vocabulary(NamedTuple):
    """The colours and shapes that a task uses."""

    colours: tuple[str, ...]
    shapes: tuple[str, ...]

    @classmethod
    def of(cls, colours: int, shapes: int) -> Vocabulary:
        """The first so many of each."""
        return cls(COLOUR_NAMES[:colours], SHAPE_NAMES[:shapes])

    def values(self, attribute: Attribute) -> tuple[str, ...]:
        """The values that an attribute can have."""
        return {"size": SIZES, "colour": self.colours, "shape": self.shapes}[attribute]

    def random_kind(self, rng: np.random.Generator) -> Kind:
        """A kind, each as likely."""
        return Kind(pick(rng, SIZES), pick(rng, self.colours), pick(rng, self.shapes))


T = TypeVar("T")


def pick(rng: np.random.Generator, values: Sequence[T]) -> T:
    """One of several values, each as likely."""
    return values[int(rng.integers(len(values)))]
