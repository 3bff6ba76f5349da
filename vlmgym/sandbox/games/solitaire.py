"""Solitaire: play all cards onto a base card; the ranks of successive cards must differ by one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import CELL, Cell, Cells
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step
from vlmgym.sandbox.drawing.canvas import THEMES, Canvas, Colour
from vlmgym.sandbox.drawing.shapes import draw_shape, turned

EMPTY = ""
ORACLE_NODES = 20_000
"""Maximum number of positions that the oracle searches per move, which takes about 0.2 s."""

PROMPT_V1 = """\
The image shows a solitaire with {rows} rows and {columns} columns. {numbering} The only card of the first row is the \
base card. In each column below, only the lowest card is free. Play a free card whose rank is one above or one below \
that of the base card; the suit does not matter, and an ace (A) is next to both 2 and king (K). The card becomes the \
new base card. Plan ahead to play all cards; the game ends when no card can be played.
Actions: {actions}.
{form}"""


_CARD = r"\w{1,2} of [a-z]{1,8}"
"""Regular expression of a card."""


class SolitaireConfig(BoardConfig):
    """Configuration of Solitaire."""

    rows: int = config_field(
        "reasoning", [3, 4, 5, 6, 6], "Rows of the board, including one for the base card.", ge=2, le=8
    )
    columns: int = config_field("reasoning", [3, 4, 6, 6, 8], "Columns of cards.", ge=2, le=12)
    relief: float = config_field(
        "perception", 0.0, "Height of tiles and figures, shown by light and shadow.", ge=0, le=1
    )

    def model_post_init(self, context: object) -> None:
        if self.cards > (most := len(DECK) - 8):
            raise ValueError(
                f"{self.rows - 1} x {self.columns} are {self.cards} cards, but at most {most} can be dealt"
            )

    @property
    def cards(self) -> int:
        """Number of cards in the columns."""
        return (self.rows - 1) * self.columns


@dataclass(frozen=True, slots=True)
class SolitaireState:
    """Cards of a solitaire, such as `10h`.

    Attributes:
        base: The base card.
        board: The rows below the base card, from top to bottom; an empty string where a card has been played.
    """

    base: str
    board: tuple[tuple[str, ...], ...]
    variation_seed: int = 0


class Solitaire(BoardGame[SolitaireState, Cell]):
    """Play all cards onto the base card, as in the patience game Black Hole.

    Description:
        All cards are visible. The lowest card of a column can be played if its rank is one above or below the rank of
        the base card; aces and kings are adjacent too. The card played becomes the new base card. Cards are dealt so
        that all of them can be played.

    Observation:
        The base card in the first row and the columns below, as an RGB image.

    Action:
        `MultiDiscrete([rows, columns])`: row and column of the card, from 0; the base card is in row 0.

    Reward:
        1 / number of cards for each card played; 0 for an illegal or unparsable answer.

    Episode end:
        No card can be played. Metrics: fraction of cards played, solved.

    Oracle:
        Plays the longest sequence of cards that a search of up to 20,000 positions finds.
    """

    name = "solitaire"
    statements = re.compile(
        rf"On the {_CARD} I can play the {_CARD} at {CELL}(?: or the {_CARD} at {CELL}){{0,60}}\.|I play the {_CARD}\."
    )
    skills = ("planning", "search")
    answer = Cells(1, "the card to play", verbs=("play",), example=(-1, 1))
    Config = SolitaireConfig
    State = SolitaireState
    prompt_template = PROMPT_V1
    perception_form = (
        "the cards, one line per row, separated by commas, each as rank and suit, for example 10 of hearts, or empty"
    )

    def deal(self, rng: np.random.Generator) -> SolitaireState | None:
        """Deal the cards of a random solution to random columns, from the lowest row upwards."""
        rows, columns = self.config.rows - 1, self.config.columns
        if (solution := self._solution(rng)) is None:
            return None
        base, *cards = solution
        board = [[EMPTY] * columns for _ in range(rows)]
        places = rng.permutation(np.repeat(np.arange(columns), rows)).tolist()
        heights = [rows] * columns
        for card, column in zip(cards, places):
            heights[column] -= 1
            board[heights[column]][column] = card
        return SolitaireState(base, tuple(map(tuple, board)))

    def legal_actions(self, state: SolitaireState) -> tuple[Cell, ...]:
        base = rank_of(state.base)
        free = sorted(_free(state).items())
        return tuple([(row + 1, column) for column, (row, card) in free if fits(rank_of(card), base)])

    def step(self, state: SolitaireState, action: Cell, rng: np.random.Generator) -> Step[SolitaireState]:
        ((row, column),) = self.answer.cells(action)
        card = self.cells(state)[row][column]
        if not row or not card:
            raise IllegalAction(f"{self.where(action)} has no card to play")
        if _free(state)[column] != (row - 1, card):
            raise IllegalAction(f"the {card_words(card)} at {self.where(action)} is not the lowest card of its column")
        if not fits(rank_of(card), rank_of(state.base)):
            raise IllegalAction(f"the {card_words(card)} is not one rank above or below the {card_words(state.base)}")
        after = replace(state, base=card, board=with_cell(state.board, (row - 1, column), (EMPTY,)))
        return Step(after, 1 / self.config.cards)

    def ended(self, state: SolitaireState) -> str | None:
        if self.legal_actions(state):
            return None
        return "no card can be played" if any(map(any, state.board)) else "all cards are played"

    def best_action(self, state: SolitaireState) -> Cell | None:
        plan = self._plan(state)
        return (_free(state)[plan[0]][0] + 1, plan[0]) if plan else None

    def metrics(self, state: SolitaireState, infos: Infos) -> Metrics:
        left = sum(sum(map(bool, line)) for line in state.board)
        return {"cards played": 1 - left / self.config.cards, "solved": float(not left)}

    def cells(self, state: SolitaireState) -> list[Sequence[str]]:
        """The base card in the middle of the first row, and the columns below."""
        columns = self.config.columns
        first = [state.base if column == columns // 2 else EMPTY for column in range(columns)]
        return [first, *state.board]

    def cell_words(self, cell: str) -> str:
        return card_words(cell) if cell else "empty"

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        side, theme = canvas.width, THEMES[self.config.theme]
        if not cell:
            canvas.rectangle(0, 0, side, side, theme.board)
            return
        canvas.rectangle(0, 0, side, side, theme.tile, radius=side * 0.09)
        draw_card(canvas, cell, self.tint(RED if cell[-1] in "hd" else BLACK), angle)

    def explain(self, state: SolitaireState, action: Cell) -> str:
        """State which cards can be played, and how many more can follow the chosen one."""
        cards = self.cells(state)
        legal = [
            f"{card_words(cards[row][column])} at {self.where((row, column))}"
            for row, column in self.legal_actions(state)
        ]
        card = card_words(cards[action[0]][action[1]])
        free = f"On the {card_words(state.base)} I can play the {' or the '.join(legal)}."
        follow = len(self._plan(self.step(state, action, np.random.default_rng(0)).state))
        rest = f" {follow} more can follow." if follow else ""
        return f"{free} I play the {card}.{rest}"

    def _plan(self, state: SolitaireState) -> tuple[int, ...]:
        columns = tuple(tuple(rank_of(card) for card in column if card) for column in zip(*state.board))
        return longest_plan(columns, rank_of(state.base), ORACLE_NODES)

    def _solution(self, rng: np.random.Generator) -> list[str] | None:
        """Draw the base card and a sequence of cards, each playable on the one before; None at a dead end."""
        deck = rng.permutation(DECK).tolist()
        left = [[card for card in deck if rank_of(card) == rank] for rank in range(len(RANKS))]
        rank = int(rng.integers(len(RANKS)))
        drawn = [left[rank].pop()]
        while len(drawn) <= self.config.cards:
            near = [(rank + step) % len(RANKS) for step in (1, -1)]
            weights = np.array([len(left[rank]) for rank in near], float)
            if not weights.any():
                return None
            rank = int(rng.choice(near, p=weights / weights.sum()))
            drawn.append(left[rank].pop())
        return drawn


def _free(state: SolitaireState) -> dict[int, tuple[int, str]]:
    """Map each non-empty column to its lowest card: the row in `state.board`, and the card."""
    return {column: (row, card) for row, line in enumerate(state.board) for column, card in enumerate(line) if card}


# Cards ----------------------------------------------------------------------------------------------------------------
#
# Playing cards: names, ranks and drawing. A card is its rank plus the first letter of its suit, such as `10h`.

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


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# Search for the order that plays the most cards, with a limit on the number of positions.


def fits(rank: int, base: int) -> bool:
    """True if a card can be played: its rank is one above or below `base`; aces and kings are adjacent."""
    return (rank - base) % len(RANKS) in (1, len(RANKS) - 1)


@lru_cache(maxsize=4096)
def longest_plan(columns: tuple[tuple[int, ...], ...], base: int, nodes: int) -> tuple[int, ...]:
    """Search depth-first for a plan that plays the most cards; return the columns to play from, in order.

    Args:
        columns: Ranks in each column; the last is played first.
        base: Rank of the base card.
        nodes: Maximum number of positions to search.
    """
    heights, path, best = list(map(len, columns)), list[int](), list[int]()
    seen = {(*heights, base)}

    def extend(base: int) -> bool:
        """Extend `path` by all plans; return True if the search ends: all cards are played, or `nodes` are searched."""
        lowest = [(height, column, columns[column][height - 1]) for column, height in enumerate(heights) if height]
        for _, column, rank in sorted([card for card in lowest if fits(card[2], base)], reverse=True):
            heights[column] -= 1
            if (key := (*heights, rank)) not in seen:
                seen.add(key)
                path.append(column)
                if len(path) > len(best):
                    best[:] = path
                if not any(heights) or len(seen) >= nodes or extend(rank):
                    return True
                path.pop()
            heights[column] += 1
        return False

    extend(base)
    return tuple(best)
