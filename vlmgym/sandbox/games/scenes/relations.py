"""Where objects are to each other, with a margin, so that no eye can doubt it."""

from __future__ import annotations

from typing import Literal

from vlmgym.sandbox.games.scenes.scene import Thing

CLEAR = 50
"""By how much one centre must be further, in thousandths of the image's side, for a relation to be told."""

Direction = Literal["to the left of", "to the right of", "above", "below"]
DIRECTIONS: tuple[Direction, ...] = ("to the left of", "to the right of", "above", "below")
SUPERLATIVES: dict[str, Direction] = {
    "leftmost": "to the left of",
    "rightmost": "to the right of",
    "topmost": "above",
    "bottommost": "below",
}
"""The object of which this is said is, in the direction, from all others that are meant."""


def lead(one: Thing, direction: Direction, other: Thing) -> int:
    """How far one object is from another in a direction, in thousandths; negative on the other side."""
    if direction in ("to the left of", "to the right of"):
        return other.x - one.x if direction == "to the left of" else one.x - other.x
    return other.y - one.y if direction == "above" else one.y - other.y


def is_clear(one: Thing, direction: Direction, other: Thing) -> bool:
    """Whether it can be told on which side one object is of another, whichever it is."""
    return abs(lead(one, direction, other)) >= CLEAR


def is_clearly(one: Thing, direction: Direction, other: Thing) -> bool:
    """Whether one object can be told to be in a direction from another."""
    return lead(one, direction, other) >= CLEAR
