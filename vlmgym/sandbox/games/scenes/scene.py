"""Scenes of coloured shapes: objects, selectors, descriptions, drawing, placement and base classes of their tasks."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from vlmgym.errors import GenerationError
from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import ImageArray, pick
from vlmgym.sandbox.core.perception import LONGEST_PERCEPTION, Perception
from vlmgym.sandbox.core.task import Task, TaskConfig, TaskStateT
from vlmgym.sandbox.drawing.canvas import COLOURS, MIDDLE, SUPERSAMPLE, THEMES, Canvas, Colour, ThemeName, blend
from vlmgym.sandbox.drawing.relief import light_scene
from vlmgym.sandbox.drawing.shapes import (
    COLOUR_NAMES,
    MAX_COLOURS,
    MAX_SHAPES,
    SHAPE_NAMES,
    Outline,
    turned,
    unit_outline,
    widen,
)

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


# Drawing --------------------------------------------------------------------------------------------------------------

RIM = 9
"""Width of the gap around each object, in thousandths of the image's side.

It separates overlapping objects of the same colour.
"""


def paint_scene(scene: Scene, size: int, similarity: float, theme: ThemeName) -> NDArray[np.uint8]:
    """Draw a scene of rounded objects that cast shadows: uint8 (size, size, 3)."""
    image = draw_objects(scene, size, similarity, theme)
    edge = _frame_width(size)
    light_scene(image[edge:-edge, edge:-edge], _background(theme))
    return image


def draw_objects(scene: Scene, size: int, similarity: float = 0.0, theme: ThemeName = "light") -> NDArray[np.uint8]:
    """Draw the flat objects of a scene: uint8 (size, size, 3)."""
    frame, background, edge = THEMES[theme].board, _background(theme), _frame_width(size)
    rows = np.full((2, size, 3), frame, np.uint8)  # the two distinct rows of an empty scene; fancy indexing copies them
    rows[1, edge:-edge] = background
    image = rows[[0] * edge + [1] * (size - 2 * edge) + [0] * edge]
    figures = [Figure.of(item, size) for item in scene]
    colours = [blend(COLOURS[item.colour], MIDDLE, similarity) for item in scene]
    for figure in figures:  # draw only around the objects
        canvas = figure.canvas(frame)
        canvas.rectangle(edge, edge, size - 2 * edge, size - 2 * edge, background)
        for other, colour in zip(figures, colours):
            if other.overlaps(figure):
                other.draw(canvas, colour, background)
        image[figure.top : figure.bottom, figure.left : figure.right] = canvas.pixels()
    return image


def _frame_width(size: int) -> int:
    return max(1, size // 320)


def _background(theme: ThemeName) -> Colour:
    return THEMES[theme].tile if theme == "light" else THEMES[theme].page


class Figure(NamedTuple):
    """An object in an image, in pixels.

    Attributes:
        outline: Outline of the object.
        rim: Outline of the gap around the object.
        left: First column of the rim's bounding box, clipped to the image.
        top: First row of the box.
        right: One past the last column of the box.
        bottom: One past the last row of the box.
    """

    outline: Outline
    rim: Outline
    left: int
    top: int
    right: int
    bottom: int

    @classmethod
    def of(cls, item: SceneObject, size: int) -> Figure:
        """Compute the figure of an object in an image of size x size."""
        unit = size / 1000
        place = (item.x * unit, item.y * unit, RADII[item.size] * unit, item.angle)
        outline, rim = turned(unit_outline(item.shape), *place), turned(_unit_rim(item.shape, item.size), *place)
        box = [
            min(max(math.floor(value), 0), size)
            for value in (
                min(x for x, _ in rim) - 0.5 / SUPERSAMPLE,
                min(y for _, y in rim) - 0.5 / SUPERSAMPLE,
                max(x for x, _ in rim) + 0.5 / SUPERSAMPLE + 1,
                max(y for _, y in rim) + 0.5 / SUPERSAMPLE + 1,
            )
        ]
        return cls(outline, rim, *box)

    def overlaps(self, other: Figure) -> bool:
        """True if the bounding boxes overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def canvas(self, background: Colour) -> Canvas:
        """Create a canvas that covers the bounding box."""
        return Canvas(self.right - self.left, self.bottom - self.top, background, left=self.left, top=self.top)

    def draw(self, canvas: Canvas, colour: Colour, rim: Colour) -> None:
        """Draw the object and the gap around it."""
        canvas.polygon(self.rim, rim)
        canvas.polygon(self.outline, colour)


@cache
def _unit_rim(shape: str, size: Size) -> Outline:
    return widen(unit_outline(shape), RIM / RADII[size])


# Placement ------------------------------------------------------------------------------------------------------------
#
# Random placement of objects so that enough of each object is visible.

RESOLUTION = 80
"""Side in pixels of the image that is measured, before supersampling by 4 in each direction."""

VISIBLE, HIDDEN = (255, 255, 255), (0, 0, 0)


class Visibility(NamedTuple):
    """How well an object can be seen.

    Attributes:
        share: Fraction of the object that is neither covered nor cropped.
        connected: True if the visible part is one piece without a neck narrower than about 1% of the image's side, so
            that it cannot be mistaken for two objects. Slivers that are narrower everywhere do not count.
    """

    share: float
    connected: bool


def measure_visibility(scene: Scene, crop: float = 0.0) -> Iterator[Visibility]:
    """Measure the visibility of each object by drawing the scene on 320 x 320 points."""
    figures = [Figure.of(item, RESOLUTION) for item in scene]
    cut = RESOLUTION * crop / 2
    for index, figure in enumerate(figures):
        above = [other for other in figures[index + 1 :] if other.overlaps(figure)]
        inside = min(figure.left, figure.top) >= cut and max(figure.right, figure.bottom) <= RESOLUTION - cut
        if inside and not above:
            yield Visibility(1.0, True)
            continue
        canvas = figure.canvas(HIDDEN)
        canvas.polygon(figure.outline, VISIBLE)
        area = canvas.mask(VISIBLE).count()
        for other in above:
            other.draw(canvas, HIDDEN, HIDDEN)
        for x, y, width, height in (
            (0, 0, RESOLUTION, cut),
            (0, RESOLUTION - cut, RESOLUTION, cut),
            (0, 0, cut, RESOLUTION),
            (RESOLUTION - cut, 0, cut, RESOLUTION),
        ):
            canvas.rectangle(x, y, width, height, HIDDEN)
        left = canvas.mask(VISIBLE)
        thick = left
        for step in ((1, 0), (1, 0), (0, 1), (0, 1)):  # erode, which removes necks thinner than 3 points
            thick = thick.overlap_mask(thick, step)
        yield Visibility(left.count() / area, all(len(mask.connected_components()) == 1 for mask in (left, thick)))


MAX_ATTEMPTS = 3000
"""Maximum number of layouts to try per scene, including repaired ones."""
MAX_REPAIRS = 25
"""Maximum number of repairs of a layout; each tries to move every object that is not visible enough."""
POSITIONS_PER_OBJECT = 100
"""Number of random positions to try for each object of a layout."""
MARGIN = 12
"""Minimum distance of objects from the edge of the image, in thousandths of its side."""
EXTENT = 1.1
"""Approximate maximum distance of an outline from the object's centre, relative to the object's radius.

Some outlines reach a little further: the corners of a square are at 1.19.
"""
DENSITY, DENSITY_OVERLAPPING = 0.45, 0.35
"""Fraction of the area that random placement easily fills with discs, without and with overlapping objects.

The diameter of the discs is the minimum distance between objects. Random discs that do not overlap jam at 0.547.
Overlapping objects must also stay connected, which takes more attempts.
"""


def max_objects(visible: float, crop: float) -> int:
    """Estimate how many objects fit even if all are large; arguments as in `SceneConfig`."""
    distance = _min_distance("large", "large", visible)
    side = 1000 - 2 * _edge_distance("large", visible, crop) + distance
    density = DENSITY if visible == 1 else DENSITY_OVERLAPPING
    return int(density * side**2 / (math.pi * (distance / 2) ** 2))


def _random_layout(kinds: Sequence[Kind], rng: np.random.Generator, config: SceneConfig) -> list[SceneObject] | None:
    """Place all objects, large ones first because they need more room; None if there is no room left."""
    placed: dict[int, SceneObject] = {}
    for index in sorted(range(len(kinds)), key=lambda index: -RADII[kinds[index].size]):
        item = _random_object(kinds[index], placed.values(), rng, config)
        if item is None:
            return None
        placed[index] = item
    return [placed[index] for index in range(len(kinds))]


def _random_object(
    kind: Kind, others: Iterable[SceneObject], rng: np.random.Generator, config: SceneConfig
) -> SceneObject | None:
    """Place an object far enough from others; None if no position was found."""
    edge = _edge_distance(kind.size, config.visible, config.crop)
    limits = [(other.x, other.y, _min_distance(kind.size, other.size, config.visible) ** 2) for other in others]
    for x, y in rng.integers(edge, 1001 - edge, (POSITIONS_PER_OBJECT, 2)).tolist():
        if all((x - other_x) ** 2 + (y - other_y) ** 2 >= limit for other_x, other_y, limit in limits):
            return SceneObject(*kind, x, y, int(rng.integers(-config.rotation, config.rotation + 1)))
    return None


def _min_distance(size: Size, other_size: Size, visible: float) -> float:
    """Return the distance between the centres of two objects at which both are probably visible enough.

    With `visible=1`, this distance leaves room for a rim between the objects.
    """
    radii = RADII[size] + RADII[other_size]
    return EXTENT * radii + RIM if visible == 1 else (0.1 + 0.65 * visible) * radii


def _edge_distance(size: Size, visible: float, crop: float) -> int:
    """Minimum distance of an object's centre from the edge of the uncropped image."""
    extent = EXTENT * RADII[size]
    return round(max(extent + MARGIN, 500 * crop + extent * (2 * visible - 1)))


# Games with generated scenes ------------------------------------------------------------------------------------------

SceneConfigT = TypeVar("SceneConfigT", bound="SceneConfig")


class SceneConfig(TaskConfig):
    """Config fields of generated scenes."""

    theme: ThemeName = config_field("perception", "light", "Background colour.")
    similarity: float = config_field(
        "perception", [0.0, 0.05, 0.1, 0.3, 0.5], "Similarity of the objects' colours.", ge=0.0, le=0.9
    )
    visible: float = config_field(
        "perception", [0.95, 0.85, 0.7, 0.65, 0.6], "Minimum visible fraction of each object's area.", ge=0.5, le=1.0
    )
    rotation: int = config_field(
        "perception", [0, 10, 20, 25, 30], "Maximum rotation of objects in degrees.", ge=0, le=30
    )
    objects: int = config_field("reasoning", [3, 5, 8, 10, 13], "Maximum number of objects in an image.", ge=3, le=16)
    colours: int = config_field("reasoning", [3, 4, 6, 8, 8], "Number of object colours.", ge=3, le=MAX_COLOURS)
    shapes: int = config_field("reasoning", [3, 4, 6, 8, 8], "Number of object shapes.", ge=3, le=MAX_SHAPES)
    attributes: int = config_field(
        "reasoning", [1, 2, 2, 3, 3], "Maximum number of attributes that describe an object.", ge=1, le=3
    )

    @model_validator(mode="after")
    def _check_room(self: SceneConfigT) -> SceneConfigT:
        """Reject more objects than fit, rather than search for positions in vain."""
        most = max_objects(self.visible, self.crop)
        if self.objects > most:
            raise ValueError(
                f"objects must be at most {most} with visible={self.visible} and crop={self.crop}, got {self.objects}"
            )
        return self

    @property
    def vocabulary(self) -> Vocabulary:
        """The colours and shapes in use."""
        return Vocabulary(COLOUR_NAMES[: self.colours], SHAPE_NAMES[: self.shapes])

    @property
    def min_objects(self) -> int:
        """Minimum number of objects in an image."""
        return max(2, self.objects * 2 // 3)

    def random_count(self, rng: np.random.Generator) -> int:
        """Sample the number of objects in an image, independently of the answer."""
        return int(rng.integers(self.min_objects, self.objects + 1))

    def random_selector(self, rng: np.random.Generator) -> Selector:
        """Sample a selector with 1 to `attributes` attributes."""
        return Selector.random(rng, self.vocabulary, int(rng.integers(1, self.attributes + 1)))

    def place(
        self,
        kinds: Sequence[Kind],
        rng: np.random.Generator,
        accept: Callable[[Sequence[SceneObject]], bool] = lambda objects: True,
    ) -> Scene:
        """Place objects at random so that at least `visible` of each can be seen, in one piece, after cropping.

        `accept` is an additional constraint, called with the objects in the order of `kinds`. The scene lists the
        objects from back to front, in random order.
        """
        attempts = iter(range(MAX_ATTEMPTS))
        for _ in attempts:
            objects = _random_layout(kinds, rng, self)
            if objects is None or not accept(objects):
                continue
            order = rng.permutation(len(objects)).tolist()
            for _ in islice(attempts, MAX_REPAIRS):
                scene = tuple(objects[index] for index in order)
                visibilities = measure_visibility(scene, self.crop)
                is_good = [seen.connected and seen.share >= self.visible for seen in visibilities]
                if all(is_good):
                    return scene
                for index in (index for index, good in zip(order, is_good) if not good):
                    others = objects[:index] + objects[index + 1 :]
                    moved = _random_object(kinds[index], others, rng, self)
                    if moved is not None and accept([*objects[:index], moved, *objects[index + 1 :]]):
                        objects[index] = moved
        wanted = f"{len(kinds)} objects with {self.visible:.0%} of each visible"
        raise GenerationError(f"found no layout of {wanted} in {MAX_ATTEMPTS} attempts")


class SceneTask(Task[TaskStateT, ActionT]):
    """A question about one generated scene, or about two, left and right."""

    @abstractmethod
    def scenes(self, state: TaskStateT) -> Sequence[Scene]:
        """Scenes of the images, in order."""

    def paint(self, state: TaskStateT) -> list[ImageArray]:
        c = self.config
        return [paint_scene(scene, c.size, c.similarity, c.theme) for scene in self.scenes(state)]

    def describe(self, state: TaskStateT) -> str:
        texts = [describe_scene(scene, self.config.crop) for scene in self.scenes(state)]
        return texts[0] if len(texts) == 1 else "left:\n{}\nright:\n{}".format(*texts)

    def perceive(self, state: TaskStateT, text: str) -> Perception:
        """Score a description of the scenes with `compare_descriptions`."""
        truths = [object_descriptions(scene, self.config.crop) for scene in self.scenes(state)]
        if len(truths) == 1:
            return compare_descriptions(truths, [text])
        return compare_descriptions([*truths, ()], split_sides(text))

    def scene_rules(self) -> str:
        """Part of the prompt that explains scenes, after a space."""
        vocabulary = self.config.vocabulary
        return (
            f" Each object is {' or '.join(SIZES)}. Its colour is one of {', '.join(vocabulary.colours)}. Its shape is "
            f"one of {', '.join(vocabulary.shapes)}. Objects may be partly covered by others; count them too. "
            "Left, right, above and below refer to the centres of objects."
        )
