"""Cut-outs of the images of tasks: objects of scenes, marks of maps, parts of photographs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration.crops import shrink
from benchmarks.calibration.spec import AnyGame, Crops
from vlmgym.sandbox.core.task import Task
from vlmgym.sandbox.games.geospot.drawing import Viewport, project
from vlmgym.sandbox.games.scenes.scene import RADII
from vlmgym.sandbox.rendering.degrade import degrade

OBJECT = 1.1 * RADII["large"] / 1000
"""Half the side of an object's cut-out over the image's, before the image is shrunk: as large objects need it."""
DEGREES = 12.0
"""Side of a mark's cut-out."""
CITIES = 2000
"""The marked city is one of so many at every level, as it is at level 3."""
PARTS = 3
"""A mark is in one of so many rows and columns of its cut-out."""
QUARTERS = 2
"""Rows and columns that a photograph is cut into."""

Point = tuple[float, float]


def scene_objects(game: AnyGame, rng: np.random.Generator) -> Crops:
    """The objects of a question's images, each in the middle of its cut-out: size, colour and shape."""
    state = game.start(rng)
    scenes = state.scenes if hasattr(state, "scenes") else (state.scene,)
    cuts, words = [], []
    for image, scene in zip(game.images(state), scenes, strict=True):
        for item in scene:
            cuts.append(_cut(game, image, (item.x / 1000, item.y / 1000), OBJECT))
            words.append(" ".join(item.kind))
    return shrink(cuts), words


def map_marks(game: AnyGame, rng: np.random.Generator) -> Crops:
    """The mark of a map on so many degrees around it: the row and the column of the cut-out that it is in."""
    c = game.config
    # Which cities are asked about is no matter of looks, but the larger ones are in brighter parts of the earth.
    state = type(game)(c.model_copy(update={"cities": CITIES})).start(rng)
    (image,) = game.images(state)
    latitude, longitude = state.middle
    x, y = project(Viewport(latitude, longitude, c.span), np.array([(state.latitude, state.longitude)]), 1)
    right, down = float(x[0]), float(y[0])
    side = DEGREES / c.span
    cuts, words = [], []
    for row in range(PARTS):
        for column in range(PARTS):
            middle = right + (0.5 - (column + 0.5) / PARTS) * side, down + (0.5 - (row + 0.5) / PARTS) * side
            cuts.append(_cut(game, image, middle, side / 2))
            words.append(f"{row}-{column}")
    return shrink(cuts), words


def photograph_parts(game: AnyGame, rng: np.random.Generator) -> Crops:
    """The quarters of a photograph, with strokes and noise of their own each time: which one of which photograph."""
    state = game.start(rng)
    assert isinstance(game, Task)
    (painted,) = game.paint(state)
    image = degrade(painted, game.config, int(rng.integers(2**32)))
    cuts, words = [], []
    for row in range(QUARTERS):
        for column in range(QUARTERS):
            middle = (column + 0.5) / QUARTERS, (row + 0.5) / QUARTERS
            cuts.append(_cut(game, image, middle, 0.5 / QUARTERS))
            words.append(f"{state.photograph}-{row}-{column}")
    return shrink(cuts), words


def _cut(game: AnyGame, image: NDArray[np.uint8], middle: Point, reach: float) -> NDArray[np.uint8]:
    """A square of an image that was cropped and shrunk, by where it was before; the edge is continued beyond it.

    Args:
        game: Its configuration says what was done to the image.
        image: uint8 (size, size, 3), as it is shown.
        middle: To the right and down, 0 to 1, in the image as it was painted.
        reach: Half the side, likewise.
    """
    c, side = game.config, len(image)
    zoom = c.scale / (1 - c.crop)
    half = max(1, round(reach * zoom * side))
    x, y = (round((0.5 + (place - 0.5) * zoom) * side) for place in middle)
    rows, columns = (np.clip(np.arange(place - half, place + half), 0, side - 1) for place in (y, x))
    cut: NDArray[np.uint8] = image[np.ix_(rows, columns)]
    return cut
