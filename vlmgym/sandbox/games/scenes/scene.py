"""Scenes of coloured shapes: objects, their relations, and selectors that describe them by attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from vlmgym.sandbox.core.game import pick
from vlmgym.sandbox.core.perception import LONGEST_PERCEPTION, Perception

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

    def values(self, attribute: Attribute) -> tuple[str, ...]:
        """Possible values of an attribute."""
        return {"size": SIZES, "colour": self.colours, "shape": self.shapes}[attribute]

    def random_kind(self, rng: np.random.Generator) -> Kind:
        """Sample a kind uniformly."""
        return Kind(pick(rng, SIZES), pick(rng, self.colours), pick(rng, self.shapes))


def offset(item: SceneObject, direction: Direction, other: SceneObject) -> int:
    """Distance of `one` from `other` in a direction, in thousandths; negative on the opposite side."""
    if direction in ("to the left of", "to the right of"):
        return other.x - item.x if direction == "to the left of" else item.x - other.x
    return other.y - item.y if direction == "above" else item.y - other.y


def is_unambiguous(item: SceneObject, direction: Direction, other: SceneObject) -> bool:
    """True if the objects are far enough apart along the axis of a direction, on either side."""
    return abs(offset(item, direction, other)) >= MIN_OFFSET


def is_in_direction(item: SceneObject, direction: Direction, other: SceneObject) -> bool:
    """True if `one` is unambiguously in a direction from `other`."""
    return offset(item, direction, other) >= MIN_OFFSET


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
        first, second = (Selector.random(rng, vocabulary, int(rng.integers(1, attributes + 1))) for _ in range(2))
        if first.is_disjoint(second) and not all(first.matches(kind) or second.matches(kind) for kind in kinds):
            return first, second


def random_distractors(
    rng: np.random.Generator, vocabulary: Vocabulary, avoided: Sequence[Selector], count: int
) -> list[Kind]:
    """Sample kinds that match none of the selectors in `avoided`, about half of them near misses.

    The vocabulary must contain such a kind, or the search never ends.
    """
    distractors: list[Kind] = []
    while len(distractors) < count:
        near = rng.random() < 0.5
        kind = pick(rng, avoided).near_miss(rng, vocabulary) if near else vocabulary.random_kind(rng)
        if not any(selector.matches(kind) for selector in avoided):
            distractors.append(kind)
    return distractors


# Descriptions ---------------------------------------------------------------------------------------------------------
#
# Text descriptions of scenes, one object per line, and scoring of models' descriptions.

TOLERANCE = 10
"""Maximum error in a centre's x and y that still earns credit, in percent of the image's side."""
MAX_LINES = 200
"""Maximum number of lines of a description that are matched; further lines only lower the score."""
LINE_FORMAT = (
    "one per line, for example: large red circle at (42, 31), where x and y are percentages of the width and height "
    "inside the frame, from the top left corner"
)
"""Format of a description in prompts."""

_LINE = re.compile(r"[-*]? ?(\w+) (\w+) (\w+) at \(? ?(\d{1,3}) ?%? ?, ?(\d{1,3}) ?%? ?\)?[.,;]?")
"""Matches lines without repeated spaces; `\\s*` would backtrack excessively on long runs of them."""


class ObjectDescription(NamedTuple):
    """Text description of an object; x and y are percentages."""

    size: str
    colour: str
    shape: str
    x: int
    y: int


def object_descriptions(scene: Scene, crop: float = 0.0) -> list[ObjectDescription]:
    """Describe the objects from left to right; coordinates are relative to the cropped image."""
    objects = [ObjectDescription(*item.kind, _percent(item.x, crop), _percent(item.y, crop)) for item in scene]
    return sorted(objects, key=lambda item: (item.x, item.y, item))


def describe_scene(scene: Scene, crop: float = 0.0) -> str:
    """Describe a scene from left to right with one object per line, as in `large red circle at (42, 31)`."""
    return "\n".join(f"{o.size} {o.colour} {o.shape} at ({o.x}, {o.y})" for o in object_descriptions(scene, crop))


def compare_descriptions(truths: Sequence[Sequence[ObjectDescription]], texts: Sequence[str]) -> Perception:
    """Score descriptions of images against their scenes. The order of lines does not matter.

    Lines are matched one-to-one to objects so as to maximise the total credit. A pair whose centres differ by at
    most `TOLERANCE` in x and in y earns the fraction of size, colour and shape that is correct; other pairs earn
    nothing. `partial` is the total credit divided by the sum of max(objects, lines) over the images, so extra lines
    cost the same as missing lines. `exact` requires full credit and no extra lines.
    """
    from scipy.optimize import linear_sum_assignment  # takes half a second to import

    credit, count = 0.0, 0
    for truth, text in zip(truths, texts, strict=True):
        lines = [line for line in text[:LONGEST_PERCEPTION].casefold().splitlines() if line.strip()]
        seen = [parse_line(line) for line in lines[:MAX_LINES]]
        credits = np.array([[_credit(item, line) for line in seen] for item in truth]).reshape(len(truth), len(seen))
        credit += float(credits[linear_sum_assignment(credits, maximize=True)].sum())
        count += max(len(truth), len(lines))
    partial = credit / count if count else 1.0
    return Perception(min(1.0, partial), float(partial > 1 - 1e-9))


def split_sides(text: str) -> tuple[str, str, str]:
    """Return the lines after a heading `left:`, the lines after `right:`, and the lines before any heading."""
    sides: dict[str, list[str]] = {"left:": [], "right:": [], "": []}
    side = ""
    for line in text[:LONGEST_PERCEPTION].casefold().splitlines():
        if (heading := line.strip()) in ("left:", "right:"):
            side = heading
        else:
            sides[side].append(line)
    left, right, neither = ("\n".join(lines) for lines in sides.values())
    return left, right, neither


def parse_line(line: str) -> ObjectDescription | None:
    """Parse a lower-case line of a description; None if it is not in the documented format."""
    match = _LINE.fullmatch(" ".join(line.split()))
    if match is None:
        return None
    size, colour, shape, x, y = match.groups()
    return ObjectDescription(size, colour, shape, int(x), int(y))


def _credit(true: ObjectDescription, seen: ObjectDescription | None) -> float:
    if seen is None or abs(true.x - seen.x) > TOLERANCE or abs(true.y - seen.y) > TOLERANCE:
        return 0.0
    return sum(a == b for a, b in zip(true[:3], seen[:3])) / 3


def _percent(thousandths: int, crop: float) -> int:
    """Convert a coordinate to percent of the cropped image's side, rounded half up."""
    cut = round(1000 * crop / 2)
    return (200 * (thousandths - cut) + 1000 - 2 * cut) // (2 * (1000 - 2 * cut))
