"""Places for the objects of a scene."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from vlmgym.errors import GenerationError
from vlmgym.sandbox.scenes.drawing import visible_shares
from vlmgym.sandbox.scenes.scene import RADII, Kind, Scene, Thing

TRIES = 3000
"""Sets of places that are tried for a scene."""
DARTS = 60
"""Places that are tried for one object of a set."""
MARGIN = 12
"""Distance of objects from the edge of the picture, in thousandths of its side."""
FREE = 1.2
"""Distance of two centres over the sum of their radii at which no outlines meet."""

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
    """A scene of objects at places by chance.

    Args:
        kinds: The objects.
        rng: Chance.
        visible: Share of each object's area that can be seen at least, 0.5 to 1.
        crop: Share of width and height of the picture that will be cut away at the edges.
        rotation: Objects are turned by up to so many degrees.
        accept: What must be true of the places; the objects come in the order of `kinds`, a scene in another.

    Raises:
        GenerationError: No such places were found in `TRIES` tries.
    """
    apart = FREE if visible == 1 else 0.1 + 0.65 * visible
    for _ in range(TRIES):
        things = _throw(kinds, rng, apart, rotation)
        if things is None or not accept(things):
            continue
        scene = tuple(things[int(i)] for i in rng.permutation(len(things)))
        if min(visible_shares(scene, crop), default=1.0) >= visible:
            return scene
    raise GenerationError(
        f"no places were found for {len(kinds)} objects of which {visible:.0%} each can be seen, in {TRIES} tries"
    )


def _throw(kinds: Sequence[Kind], rng: np.random.Generator, apart: float, rotation: int) -> list[Thing] | None:
    """Objects at places whose distances promise that enough of each can be seen, or None if room was lacking.

    Large ones come first, because they find less room between others.
    """
    placed: dict[int, Thing] = {}
    for index in sorted(range(len(kinds)), key=lambda index: -RADII[kinds[index].size]):
        kind = kinds[index]
        radius = RADII[kind.size]
        edge = round(radius * 1.1) + MARGIN
        for _ in range(DARTS):
            x, y = (int(v) for v in rng.integers(edge, 1001 - edge, 2))
            if all(math.hypot(x - t.x, y - t.y) >= apart * (radius + RADII[t.size]) for t in placed.values()):
                break
        else:
            return None
        placed[index] = Thing(*kind, x, y, int(rng.integers(-rotation, rotation + 1)))
    return [placed[index] for index in range(len(kinds))]
