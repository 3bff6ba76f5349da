"""Places for the objects of a scene."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np

from vlmgym.errors import GenerationError
from vlmgym.sandbox.games.scenes.drawing import RIM
from vlmgym.sandbox.games.scenes.scene import RADII, Kind, Scene, Size, Thing
from vlmgym.sandbox.games.scenes.visibility import sights

TRIES = 3000
"""Sets of places that are tried for a scene, those included that differ in a few places from the one before."""
MOVES = 25
"""How often objects of a set that cannot be seen well are moved."""
DARTS = 100
"""Places that are tried for one object of a set."""
MARGIN = 12
"""Distance of objects from the edge of the image, in thousandths of its side."""
EXTENT = 1.1
"""How far from its centre an object reaches over its radius."""
COVERED, COVERED_OVERLAPPING = 0.45, 0.35
"""Share of an area that is easily covered by discs, of the diameter that is the distance of objects, thrown at random.

In the end discs that do not overlap would cover 0.547; objects that do must be placed with more care.
"""

Things = Sequence[Thing]


def place(
    kinds: Sequence[Kind],
    rng: np.random.Generator,
    *,
    visible: float,
    crop: float,
    rotation: int,
    accept: Callable[[Things], bool] = lambda things: True,
) -> Scene:
    """A scene of objects at places by chance, each of which can be seen in one piece.

    Args:
        kinds: The objects.
        rng: Chance.
        visible: Share of each object's area that can be seen at least, 0.5 to 1.
        crop: Share of width and height of the image that will be cut away at the edges.
        rotation: Objects are turned by up to so many degrees.
        accept: What must be true of the places; the objects come in the order of `kinds`, a scene in another.

    Raises:
        GenerationError: No such places were found in `TRIES` tries.
    """
    tries = iter(range(TRIES))
    for _ in tries:
        things = _throw(kinds, rng, visible, crop, rotation)
        if things is None or not accept(things):
            continue
        order = rng.permutation(len(things)).tolist()
        for _ in islice(tries, MOVES):
            scene = tuple(things[index] for index in order)
            seen = [sight.whole and sight.share >= visible for sight in sights(scene, crop)]
            if all(seen):
                return scene
            for index in (index for index, good in zip(order, seen) if not good):
                others = things[:index] + things[index + 1 :]
                moved = _drop(kinds[index], others, rng, visible, crop, rotation)
                if moved is not None and accept([*things[:index], moved, *things[index + 1 :]]):
                    things[index] = moved
    raise GenerationError(
        f"no places were found for {len(kinds)} objects of which {visible:.0%} each can be seen, in {TRIES} tries"
    )


def room(visible: float, crop: float) -> int:
    """For how many objects places are found, also if most are large; arguments as in `place`."""
    distance = _distance("large", "large", visible)
    side = 1000 - 2 * _edge("large", visible, crop) + distance
    covered = COVERED if visible == 1 else COVERED_OVERLAPPING
    return int(covered * side**2 / (math.pi * (distance / 2) ** 2))


def _throw(
    kinds: Sequence[Kind], rng: np.random.Generator, visible: float, crop: float, rotation: int
) -> list[Thing] | None:
    """Objects at places whose distances promise that enough of each can be seen, or None if room was lacking.

    Large ones come first, because they find less room between others.
    """
    placed: dict[int, Thing] = {}
    for index in sorted(range(len(kinds)), key=lambda index: -RADII[kinds[index].size]):
        thing = _drop(kinds[index], placed.values(), rng, visible, crop, rotation)
        if thing is None:
            return None
        placed[index] = thing
    return [placed[index] for index in range(len(kinds))]


def _drop(
    kind: Kind, others: Iterable[Thing], rng: np.random.Generator, visible: float, crop: float, rotation: int
) -> Thing | None:
    """An object at a place that is far enough from others, or None if none was found."""
    edge = _edge(kind.size, visible, crop)
    apart = [(other.x, other.y, _distance(kind.size, other.size, visible) ** 2) for other in others]
    for x, y in rng.integers(edge, 1001 - edge, (DARTS, 2)).tolist():
        if all((x - its_x) ** 2 + (y - its_y) ** 2 >= distance for its_x, its_y, distance in apart):
            return Thing(*kind, x, y, int(rng.integers(-rotation, rotation + 1)))
    return None


def _distance(one: Size, other: Size, visible: float) -> float:
    """Between the centres of two objects of which enough can be seen; of whole ones not even the rims meet."""
    radii = RADII[one] + RADII[other]
    return EXTENT * radii + RIM if visible == 1 else (0.1 + 0.65 * visible) * radii


def _edge(size: Size, visible: float, crop: float) -> int:
    """How far the centre of an object is from the edge of the image of which a part is cut away, at least."""
    extent = EXTENT * RADII[size]
    return round(max(extent + MARGIN, 500 * crop + extent * (2 * visible - 1)))
