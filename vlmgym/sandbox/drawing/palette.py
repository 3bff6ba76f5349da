"""Named colours, themes and blending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vlmgym.sandbox.drawing.canvas import Colour

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of page, board, empty cells, plain tiles and coordinate labels."""

    page: Colour
    board: Colour
    empty: Colour
    tile: Colour
    label: Colour


THEMES: dict[ThemeName, Theme] = {
    "light": Theme(
        page=(250, 248, 243), board=(187, 176, 164), empty=(205, 196, 184), tile=(252, 250, 246), label=(110, 100, 90)
    ),
    "dark": Theme(
        page=(22, 25, 33), board=(46, 52, 66), empty=(59, 66, 82), tile=(236, 239, 244), label=(170, 180, 196)
    ),
}


@dataclass(frozen=True, slots=True)
class Look:
    """Colours of a drawn picture: page, areas on it, ink, faint lines, and seven accents."""

    page: Colour
    panel: Colour
    ink: Colour
    faint: Colour
    accents: tuple[Colour, ...]


COLOURS: dict[str, Colour] = {
    "red": (200, 24, 30),
    "blue": (14, 114, 236),
    "green": (34, 138, 44),
    "yellow": (236, 204, 14),
    "purple": (140, 24, 182),
    "cyan": (10, 186, 206),
    "orange": (250, 122, 18),
    "pink": (242, 130, 188),
}
"""Tile colours by name."""

OUTCOME_COLOURS: dict[str, Colour] = {
    "played": (96, 200, 120),
    "illegal": (250, 160, 60),
    "unparsable": (242, 92, 92),
}
"""Colours of outcomes on a dark background."""

WHITE: Colour = (255, 255, 255)
BLACK: Colour = (0, 0, 0)
MIDDLE: Colour = (128, 122, 120)
"""Grey that tile colours approach as their similarity rises."""


def blend(colour: Colour, other: Colour, share: float) -> Colour:
    """Mix two colours; `share` is the fraction of `other`, 0 to 1."""
    r, g, b = (round(a + (c - a) * share) for a, c in zip(colour, other))
    return r, g, b


_DEEP = ((202, 62, 55), (38, 104, 178), (56, 132, 74), (222, 152, 38), (124, 74, 160), (24, 142, 152), (206, 94, 146))
_PALE = tuple(blend(colour, WHITE, 0.45) for colour in _DEEP)

LookName = Literal["paper", "slate", "blueprint", "plain"]

LOOKS: dict[LookName, Look] = {
    "paper": Look((243, 235, 217), (251, 246, 234), (58, 50, 44), (206, 192, 166), _DEEP),
    "slate": Look((40, 56, 54), (50, 68, 65), (238, 240, 232), (98, 118, 112), _PALE),
    "blueprint": Look((24, 62, 116), (33, 74, 132), (232, 241, 255), (92, 132, 188), _PALE),
    "plain": Look((255, 255, 255), (243, 245, 249), (32, 36, 46), (206, 211, 221), _DEEP),
}
"""Looks by name; each question of a task may have another one."""
