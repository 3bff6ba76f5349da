"""Names of tiles with coloured shapes, such as `red circle`."""

from __future__ import annotations

from functools import lru_cache

EMPTY = "empty"
"""Name of a cell without a tile."""

COLOUR_NAMES = ("red", "blue", "green", "yellow", "purple", "cyan", "orange", "pink")
SHAPE_NAMES = ("circle", "square", "triangle", "star", "diamond", "heart", "moon", "cross")
"""Games that need n colours or shapes use the first n. `sandbox/rendering` draws them."""

MAX_COLOURS = len(COLOUR_NAMES)
MAX_SHAPES = len(SHAPE_NAMES)


@lru_cache(maxsize=MAX_COLOURS * MAX_SHAPES)
def tile_kinds(colours: int, shapes: int) -> tuple[str, ...]:
    """Return the names of all tiles with the first colours and shapes: `red circle`, `red square`, ..."""
    return tuple(f"{colour} {shape}" for colour in COLOUR_NAMES[:colours] for shape in SHAPE_NAMES[:shapes])
