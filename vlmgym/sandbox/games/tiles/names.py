"""The names of tiles that are told apart by a colour and a shape, such as `red circle`."""

from __future__ import annotations

from functools import lru_cache

from vlmgym.errors import UsageError

EMPTY = "empty"
"""What a cell without a tile is called."""

COLOUR_NAMES = ("red", "blue", "green", "yellow", "purple", "cyan", "orange", "pink")
SHAPE_NAMES = ("circle", "square", "triangle", "star", "diamond", "heart", "moon", "cross")
"""A game that needs n colours or shapes takes the first n; `sandbox/drawing` knows how each looks."""

MAX_COLOURS = len(COLOUR_NAMES)
MAX_SHAPES = len(SHAPE_NAMES)


@lru_cache(maxsize=MAX_COLOURS * MAX_SHAPES)
def kinds(colours: int, shapes: int) -> tuple[str, ...]:
    """Names of all tiles of the first so many colours and shapes: `red circle`, `red square`, ...

    Raises:
        UsageError: There are not that many colours or shapes.
    """
    if not 1 <= colours <= MAX_COLOURS:
        raise UsageError(f"there are 1 to {MAX_COLOURS} colours, not {colours}")
    if not 1 <= shapes <= MAX_SHAPES:
        raise UsageError(f"there are 1 to {MAX_SHAPES} shapes, not {shapes}")
    return tuple(f"{colour} {shape}" for colour in COLOUR_NAMES[:colours] for shape in SHAPE_NAMES[:shapes])
