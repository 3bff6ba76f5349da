"""Random placement of objects so that enough of each object is visible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from vlmgym.errors import GenerationError
from vlmgym.sandbox.games.scenes.drawing import RIM, Figure
from vlmgym.sandbox.games.scenes.scene import RADII, Kind, Scene, SceneObject, Size

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


def place_objects(
    kinds: Sequence[Kind],
    rng: np.random.Generator,
    *,
    visible: float,
    crop: float,
    rotation: int,
    accept: Callable[[Sequence[SceneObject]], bool] = lambda objects: True,
) -> Scene:
    """Place objects at random so that at least a fraction `visible` of each can be seen, in one piece, after cropping.

    `accept` is an additional constraint, called with the objects in the order of `kinds`. The scene lists the
    objects from back to front, in random order.
    """
    attempts = iter(range(MAX_ATTEMPTS))
    for _ in attempts:
        objects = _random_layout(kinds, rng, visible, crop, rotation)
        if objects is None or not accept(objects):
            continue
        order = rng.permutation(len(objects)).tolist()
        for _ in islice(attempts, MAX_REPAIRS):
            scene = tuple(objects[index] for index in order)
            is_good = [seen.connected and seen.share >= visible for seen in measure_visibility(scene, crop)]
            if all(is_good):
                return scene
            for index in (index for index, good in zip(order, is_good) if not good):
                others = objects[:index] + objects[index + 1 :]
                moved = _random_object(kinds[index], others, rng, visible, crop, rotation)
                if moved is not None and accept([*objects[:index], moved, *objects[index + 1 :]]):
                    objects[index] = moved
    raise GenerationError(
        f"found no layout of {len(kinds)} objects with {visible:.0%} of each visible in {MAX_ATTEMPTS} attempts"
    )


def max_objects(visible: float, crop: float) -> int:
    """Estimate how many objects fit even if all are large; arguments as in `place_objects`."""
    distance = _min_distance("large", "large", visible)
    side = 1000 - 2 * _edge_distance("large", visible, crop) + distance
    density = DENSITY if visible == 1 else DENSITY_OVERLAPPING
    return int(density * side**2 / (math.pi * (distance / 2) ** 2))


def _random_layout(
    kinds: Sequence[Kind], rng: np.random.Generator, visible: float, crop: float, rotation: int
) -> list[SceneObject] | None:
    """Place all objects, large ones first because they need more room; None if there is no room left."""
    placed: dict[int, SceneObject] = {}
    for index in sorted(range(len(kinds)), key=lambda index: -RADII[kinds[index].size]):
        item = _random_object(kinds[index], placed.values(), rng, visible, crop, rotation)
        if item is None:
            return None
        placed[index] = item
    return [placed[index] for index in range(len(kinds))]


def _random_object(
    kind: Kind, others: Iterable[SceneObject], rng: np.random.Generator, visible: float, crop: float, rotation: int
) -> SceneObject | None:
    """Place an object far enough from others; None if no position was found."""
    edge = _edge_distance(kind.size, visible, crop)
    limits = [(other.x, other.y, _min_distance(kind.size, other.size, visible) ** 2) for other in others]
    for x, y in rng.integers(edge, 1001 - edge, (POSITIONS_PER_OBJECT, 2)).tolist():
        if all((x - other_x) ** 2 + (y - other_y) ** 2 >= limit for other_x, other_y, limit in limits):
            return SceneObject(*kind, x, y, int(rng.integers(-rotation, rotation + 1)))
    return None


def _min_distance(one: Size, other: Size, visible: float) -> float:
    """Return the distance between the centres of two objects at which both are probably visible enough.

    With `visible=1`, this distance leaves room for a rim between the objects.
    """
    radii = RADII[one] + RADII[other]
    return EXTENT * radii + RIM if visible == 1 else (0.1 + 0.65 * visible) * radii


def _edge_distance(size: Size, visible: float, crop: float) -> int:
    """Minimum distance of an object's centre from the edge of the uncropped image."""
    extent = EXTENT * RADII[size]
    return round(max(extent + MARGIN, 500 * crop + extent * (2 * visible - 1)))
