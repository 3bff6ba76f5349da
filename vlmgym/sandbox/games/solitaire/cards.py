"""Playing cards: names, ranks and drawing. A card is its rank plus the first letter of its suit, such as `10h`."""

from __future__ import annotations

from collections.abc import Mapping

from vlmgym.sandbox.drawing.canvas import Canvas, Colour
from vlmgym.sandbox.drawing.shapes import draw_shape, turned

RANKS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")
SUITS: Mapping[str, str] = {"s": "spades", "h": "hearts", "d": "diamonds", "c": "clubs"}
DECK = tuple(rank + suit for rank in RANKS for suit in SUITS)
RED: Colour = (200, 24, 30)
BLACK: Colour = (28, 30, 36)
_STEM = [(-0.12, 0.2), (0.12, 0.2), (0.34, 1.0), (-0.34, 1.0)]


def rank_of(card: str) -> int:
    """Rank of a card, from 0 for an ace to 12 for a king."""
    return RANKS.index(card[:-1])


def card_words(card: str) -> str:
    """Name a card: `10 of hearts`."""
    return f"{card[:-1]} of {SUITS[card[-1]]}"


def ink_of(card: str) -> Colour:
    """Colour of a card's suit."""
    return RED if card[-1] in "hd" else BLACK


def draw_card(canvas: Canvas, card: str, ink: Colour, angle: float) -> None:
    """Draw rank and suit of a card, rotated by `angle` degrees, onto a square canvas that shows a blank card."""
    side = canvas.width
    (rank_x, rank_y), (suit_x, suit_y) = turned([(0, -0.21), (0, 0.25)], side / 2, side / 2, side, angle)
    canvas.text(card[:-1], rank_x, rank_y, side * 0.4, ink, max_width=side * 0.72, angle=angle)
    _draw_suit(canvas, card[-1], suit_x, suit_y, side * 0.19, ink, angle)


def _draw_suit(canvas: Canvas, suit: str, x: float, y: float, radius: float, ink: Colour, angle: float) -> None:
    if suit in "hd":
        draw_shape(canvas, {"h": "heart", "d": "diamond"}[suit], x, y, radius, ink, angle)
        return
    canvas.polygon(turned(_STEM, x, y, radius, angle), ink)
    if suit == "s":
        draw_shape(canvas, "heart", *turned([(0, -0.12)], x, y, radius, angle)[0], radius * 0.95, ink, angle + 180)
        return
    for leaf_x, leaf_y in turned([(0, -0.52), (-0.52, 0.18), (0.52, 0.18)], x, y, radius, angle):
        canvas.circle(leaf_x, leaf_y, radius * 0.46, ink)
