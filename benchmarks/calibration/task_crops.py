"""Crops of task images for the readers: objects in scenes, marks on maps, parts of photographs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration.crops import shrink
from benchmarks.calibration.spec import AnyGame, Crops
from vlmgym.sandbox.core.task import Task
from vlmgym.sandbox.drawing.degrade import degrade
from vlmgym.sandbox.games.geospot.drawing import Viewport, project
from vlmgym.sandbox.games.scenes.scene import RADII

OBJECT = 1.1 * RADII["large"] / 1000
"""Half the side of an object's crop, relative to the side of the unscaled image, so that large objects fit."""
DEGREES = 12.0
"""Side of a mark's crop, in degrees."""
CITIES = 2000
"""Value of the config field `cities` at all levels: its default at level 3."""
PARTS = 3
"""Rows and columns into which a crop is divided; readers name the row and column of the mark."""
QUARTERS = 2
"""Rows and columns into which a photograph is cropped."""

Point = tuple[float, float]


def scene_objects(game: AnyGame, rng: np.random.Generator) -> Crops:
    """Crop each object of a scene, centred and labelled by size, colour and shape."""
    state = game.start(rng)
    scenes = state.scenes if hasattr(state, "scenes") else (state.scene,)
    crops, labels = [], []
    for image, scene in zip(game.images(state), scenes, strict=True):
        for item in scene:
            crops.append(_crop(game, image, (item.x / 1000, item.y / 1000), OBJECT))
            labels.append(" ".join(item.kind))
    return shrink(crops), labels


def map_marks(game: AnyGame, rng: np.random.Generator) -> Crops:
    """Crop the mark of a map at several offsets, labelled by its row and column in the crop."""
    c = game.config
    # The same cities at every reasoning level: larger cities, which lower levels ask about, are in brighter places.
    state = type(game)(c.model_copy(update={"cities": CITIES})).start(rng)
    (image,) = game.images(state)
    latitude, longitude = state.middle
    x, y = project(Viewport(latitude, longitude, c.span), np.array([(state.latitude, state.longitude)]), 1)
    right, down = float(x[0]), float(y[0])
    side = DEGREES / c.span
    crops, labels = [], []
    for row in range(PARTS):
        for column in range(PARTS):
            middle = right + (0.5 - (column + 0.5) / PARTS) * side, down + (0.5 - (row + 0.5) / PARTS) * side
            crops.append(_crop(game, image, middle, side / 2))
            labels.append(f"{row}-{column}")
    return shrink(crops), labels


def photograph_parts(game: AnyGame, rng: np.random.Generator) -> Crops:
    """Crop the quarters of a photograph with fresh strokes and noise, labelled by photograph and quarter."""
    state = game.start(rng)
    assert isinstance(game, Task)
    (painted,) = game.paint(state)
    image = degrade(painted, game.config, int(rng.integers(2**32)))
    crops, labels = [], []
    for row in range(QUARTERS):
        for column in range(QUARTERS):
            middle = (column + 0.5) / QUARTERS, (row + 0.5) / QUARTERS
            crops.append(_crop(game, image, middle, 0.5 / QUARTERS))
            labels.append(f"{state.photograph}-{row}-{column}")
    return shrink(crops), labels


def _crop(game: AnyGame, image: NDArray[np.uint8], middle: Point, reach: float) -> NDArray[np.uint8]:
    """Crop a square, given in coordinates of the image before the game cropped and scaled it; replicate edges.

    Args:
        game: Game whose config has the cropping and scaling of the image.
        image: Degraded image, uint8 (size, size, 3).
        middle: x and y of the centre in the original image, 0 to 1.
        reach: Half the side, in the same units.
    """
    c, side = game.config, len(image)
    zoom = c.scale / (1 - c.crop)
    half = max(1, round(reach * zoom * side))
    x, y = (round((0.5 + (value - 0.5) * zoom) * side) for value in middle)
    rows, columns = (np.clip(np.arange(value - half, value + half), 0, side - 1) for value in (y, x))
    crop: NDArray[np.uint8] = image[np.ix_(rows, columns)]
    return crop
