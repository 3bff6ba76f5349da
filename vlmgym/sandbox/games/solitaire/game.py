"""Solitaire: play all cards onto a base card; the ranks of successive cards must differ by one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vlmgym.errors import GenerationError, IllegalAction, StateError
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, Cell, with_cell
from vlmgym.sandbox.core.config import Criterion, config_field
from vlmgym.sandbox.core.game import Step
from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.drawing.palette import THEMES
from vlmgym.sandbox.games.solitaire.cards import DECK, RANKS, card_words, draw_card, ink_of, rank_of
from vlmgym.sandbox.games.solitaire.solver import LongestPlan, fits, longest_plan

EMPTY = ""
MAX_DEALS = 1000
"""Maximum number of attempts to deal; level 5 takes 1.5 on average."""
ORACLE_NODES = 20_000
"""Maximum number of positions that the oracle searches per move, which takes about 0.2 s."""

PROMPT_V1 = """\
The image shows a solitaire with {rows} rows and {columns} columns. Rows are numbered from {origin} at the top and \
columns from {origin} at the left. The only card of the first row is the base card. In each column below, only the \
lowest card is free. Play a free card whose rank is one above or one below that of the base card; the suit does not \
matter, and an ace (A) is next to both 2 and king (K). The card becomes the new base card. Plan ahead to play all \
cards; the game ends when no card can be played.
Actions: the coordinates (row, column) of the card to play, for example {example}.
{form}"""

_PERCEPTION = (
    "the cards, one line per row, separated by commas, each as rank and suit, for example 10 of hearts, or empty"
)


class SolitaireConfig(BoardConfig):
    """Configuration of Solitaire."""

    rows: int = config_field(
        "reasoning", [3, 4, 5, 6, 6], "Rows of the board, including one for the base card.", ge=2, le=8
    )
    columns: int = config_field("reasoning", [3, 4, 6, 6, 8], "Columns of cards.", ge=2, le=12)

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
        variation_seed: Seed of the rotation, noise and clutter of tiles.
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
    skills = ("planning", "search")
    criterion = Criterion("random-legal", "cards played", log=True)
    cells_in_action = 1
    answer_verbs = ("play",)
    Config = SolitaireConfig
    State = SolitaireState
    prompt_template = PROMPT_V1

    def start(self, rng: np.random.Generator) -> SolitaireState:
        """Deal the cards of a random solution to random columns, from the lowest row upwards."""
        rows, columns = self.config.rows - 1, self.config.columns
        base, *cards = self._solution(rng)
        board = [[EMPTY] * columns for _ in range(rows)]
        places = rng.permutation(np.repeat(np.arange(columns), rows)).tolist()
        heights = [rows] * columns
        for card, column in zip(cards, places):
            heights[column] -= 1
            board[heights[column]][column] = card
        return SolitaireState(base, tuple(map(tuple, board)), int(rng.integers(2**32)))

    def legal_actions(self, state: SolitaireState) -> tuple[Cell, ...]:
        base = rank_of(state.base)
        free = sorted(_free(state).items())
        return tuple([(row + 1, column) for column, (row, card) in free if fits(rank_of(card), base)])

    def step(self, state: SolitaireState, action: Cell, rng: np.random.Generator) -> Step[SolitaireState]:
        ((row, column),) = self.action_cells(action)
        card = self.cells(state)[row][column]
        if not row or not card:
            raise IllegalAction(f"{self.where(action)} has no card to play")
        if _free(state)[column] != (row - 1, card):
            raise IllegalAction(f"the {card_words(card)} at {self.where(action)} is not the lowest card of its column")
        if not fits(rank_of(card), rank_of(state.base)):
            raise IllegalAction(f"the {card_words(card)} is not one rank above or below the {card_words(state.base)}")
        after = replace(state, base=card, board=with_cell(state.board, (row - 1, column), (EMPTY,)))
        return Step(after, 1 / self.config.cards, self.ended(after) is not None)

    def ended(self, state: SolitaireState) -> str | None:
        if self.legal_actions(state):
            return None
        return "no card can be played" if any(map(any, state.board)) else "all cards are played"

    def best_action(self, state: SolitaireState) -> Cell | None:
        plan = self._plan(state)
        return (_free(state)[plan.columns[0]][0] + 1, plan.columns[0]) if plan.columns else None

    def metrics(self, state: SolitaireState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        left = sum(sum(map(bool, line)) for line in state.board)
        return {"cards played": 1 - left / self.config.cards, "solved": float(not left)}

    def cells(self, state: SolitaireState) -> list[Sequence[str]]:
        """The base card in the middle of the first row, and the columns below."""
        columns = self.config.columns
        first = [state.base if column == columns // 2 else EMPTY for column in range(columns)]
        return [first, *state.board]

    def cell_words(self, cell: Hashable) -> str:
        return card_words(str(cell)) if cell else "empty"

    def paint_cell(self, canvas: Canvas, cell: Hashable, angle: float) -> None:
        side, theme = canvas.width, THEMES[self.config.theme]
        if not cell:
            canvas.rectangle(0, 0, side, side, theme.board)
            return
        canvas.rectangle(0, 0, side, side, theme.tile, radius=side * 0.09)
        draw_card(canvas, str(cell), self.tint(ink_of(str(cell))), angle)

    def prompt(self, state: SolitaireState) -> str:
        return self.fill_prompt(_PERCEPTION, "(row, column)", example=self.format((self.config.rows - 1, 1)))

    def explain(self, state: SolitaireState, action: Cell) -> str:
        """State which cards can be played, and how many more can follow the chosen one."""
        cards = self.cells(state)
        legal = [
            f"{card_words(cards[row][column])} at {self.where((row, column))}"
            for row, column in self.legal_actions(state)
        ]
        card = card_words(cards[action[0]][action[1]])
        free = f"On the {card_words(state.base)} I can play the {' or the '.join(legal)}."
        follow = len(self._plan(self.step(state, action, np.random.default_rng(0)).state).columns)
        rest = f" {follow} more can follow." if follow else ""
        return f"{free} I play the {card}.{rest}"

    def check_state(self, state: SolitaireState) -> None:
        lines = [[EMPTY] * self.config.columns, *state.board]
        self.check_board_size(lines)
        cards = [card for line in state.board for card in line if card] + [state.base]
        if unknown := [card for card in cards if card not in DECK]:
            raise StateError(f"{unknown[0]!r} is not a card")
        if len(set(cards)) < len(cards):
            raise StateError("a card occurs twice")
        if any(EMPTY in column[: sum(map(bool, column))] for column in zip(*state.board)):
            raise StateError("a card lies below an empty cell")

    def _plan(self, state: SolitaireState) -> LongestPlan:
        columns = tuple(tuple(rank_of(card) for card in column if card) for column in zip(*state.board))
        return longest_plan(columns, rank_of(state.base), ORACLE_NODES)

    def _solution(self, rng: np.random.Generator) -> list[str]:
        """Draw the base card and a sequence of cards; each card can be played on the one before."""
        for _ in range(MAX_DEALS):
            deck = rng.permutation(DECK).tolist()
            left = [[card for card in deck if rank_of(card) == rank] for rank in range(len(RANKS))]
            rank = int(rng.integers(len(RANKS)))
            drawn = [left[rank].pop()]
            while len(drawn) <= self.config.cards:
                near = [(rank + step) % len(RANKS) for step in (1, -1)]
                weights = np.array([len(left[each]) for each in near], float)
                if not weights.any():
                    break
                rank = int(rng.choice(near, p=weights / weights.sum()))
                drawn.append(left[rank].pop())
            else:
                return drawn
        raise GenerationError(f"solitaire: {self.config.cards} cards could not be dealt in {MAX_DEALS} attempts")


def _free(state: SolitaireState) -> dict[int, tuple[int, str]]:
    """Map each non-empty column to its lowest card: the row in `state.board`, and the card."""
    free = {}
    for row, line in enumerate(state.board):
        for column, card in enumerate(line):
            if card:
                free[column] = row, card
    return free
