"""Matching pairs: turn cards over, remember them, and find the pairs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from pydantic import NonNegativeInt

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import CELL, Cell, Cells
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, find_cells, with_cell
from vlmgym.sandbox.core.config import GameConfig, config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step
from vlmgym.sandbox.drawing.canvas import COLOURS, Canvas, blend
from vlmgym.sandbox.drawing.shapes import (
    COLOUR_NAMES,
    MAX_COLOURS,
    MAX_SHAPES,
    SHAPE_NAMES,
    draw_shape,
    paint_colour_shape,
    tile_kinds,
)

NEW, KNOWN, SHOWN, FOUND = ".", "?", "!", "="
"""States of a card: face down and never seen, face down and seen before, face up, and face up in a pair."""
DOWN = "face down"
KINDS = tile_kinds(MAX_COLOURS, MAX_SHAPES)

PROMPT_V1 = """\
The image shows {rows} rows and {columns} columns of cards. {numbering} Every card has a colour ({colours}) and a \
shape ({shapes}), and a partner with the same colour and shape. You turn over one card per turn. If it is the partner \
of the single card that you turned over before, both stay face up; otherwise both are turned face down again when you \
choose the next card, so remember the cards of earlier images. Find all pairs; you can turn over {left} more cards.
Actions: {actions}.
{form}"""


class PairsConfig(BoardConfig):
    """Configuration of matching pairs."""

    rows: int = config_field(
        "reasoning", [2, 3, 4, 4, 6], "Rows of the board; rows x columns must be even.", ge=1, le=8
    )
    columns: int = config_field("reasoning", [2, 4, 4, 6, 6], "Columns of the board.", ge=2, le=8)
    patience: int = config_field("reasoning", 3, "Maximum number of turns divided by number of cards.", ge=1, le=20)

    def model_post_init(self, context: object) -> None:
        if self.cell_count % 2:
            raise ValueError(f"rows x columns must be even, got {self.rows} x {self.columns}")


@dataclass(frozen=True, slots=True)
class PairsState:
    """Cards, rows x columns.

    Attributes:
        cards: Indices of all cards in `KINDS`.
        sides: A character for each card: `.` never seen, `?` face down but seen, `!` face up, `=` found.
        turns: Number of cards turned over so far.
    """

    cards: tuple[tuple[int, ...], ...]
    sides: tuple[str, ...]
    turns: NonNegativeInt = 0
    variation_seed: int = 0


class Pairs(BoardGame[PairsState, Cell]):
    """Turn over cards to find pairs, remembering the cards of earlier images.

    Description:
        All cards start face down. Each turn flips one card. If the second of two cards matches the first, both stay
        face up; otherwise both are flipped back when the next card is chosen. Images show only the cards that are face
        up, so prompts repeat as many earlier turns as there are cards.

    Observation:
        The cards as an RGB image.

    Action:
        `MultiDiscrete([rows, columns])`: row and column of a card that is face down, from 0.

    Reward:
        1 / number of pairs for each pair found; 0 otherwise.

    Episode end:
        All pairs are found, or `patience` turns per card are used up. Metrics: fraction of pairs found, cards flipped
        per pair found.

    Oracle:
        Remembers all cards that it has seen, and does not know the others.
    """

    name = "pairs"
    statements = re.compile(
        rf"I have not seen the card at {CELL} yet\.|An earlier image showed a [a-z ]{{1,40}} at {CELL}"
        rf"(?:; I have not seen its partner|, and its partner (?:is face up|was, too,) at {CELL})\."
    )
    skills = ("memory",)
    title = "Matching pairs"
    answer = Cells(1, "a card that is face down", verbs=("turn", "flip", "open"), example=(0, 1))
    Config = PairsConfig
    State = PairsState
    prompt_template = PROMPT_V1
    perception_form = (
        "the cards, one line per row, separated by commas, each as colour and shape, such as red circle, or as "
        "face down"
    )
    partially_observable = True

    def __init__(self, config: GameConfig | None = None) -> None:
        super().__init__(config)
        self.history = self.config.cell_count

    def deal(self, rng: np.random.Generator) -> PairsState:
        c = self.config
        kinds = rng.choice(len(KINDS), c.cell_count // 2, replace=False)
        cards = rng.permutation(np.repeat(kinds, 2)).reshape(c.rows, c.columns).tolist()
        return PairsState(tuple(map(tuple, cards)), (NEW * c.columns,) * c.rows)

    def legal_actions(self, state: PairsState) -> tuple[Cell, ...]:
        return () if self.ended(state) is not None else tuple(find_cells(state.sides, NEW + KNOWN))

    def step(self, state: PairsState, action: Cell, rng: np.random.Generator) -> Step[PairsState]:
        ((row, column),) = self.answer.cells(action)
        if state.sides[row][column] not in NEW + KNOWN:
            raise IllegalAction(f"the card at {self.where(action)} is already face up")
        sides, shown = state.sides, find_cells(state.sides, SHOWN)
        if len(shown) == 2:
            sides, shown = tuple(line.replace(SHOWN, KNOWN) for line in sides), []
        pair = bool(shown) and self._kind(state, shown[0]) == self._kind(state, action)
        for cell in [*shown, action] if pair else [action]:
            sides = with_cell(sides, cell, FOUND if pair else SHOWN)
        after = replace(state, sides=sides, turns=state.turns + 1)
        reward = 2 / self.config.cell_count if pair else 0.0
        return Step(after, reward, {"pair": pair})

    def ended(self, state: PairsState) -> str | None:
        if all(set(line) == {FOUND} for line in state.sides):
            return "all pairs are found"
        return "the turns are used up" if state.turns >= self._turns else None

    def best_action(self, state: PairsState) -> Cell | None:
        """Start or complete a pair whose cards have both been seen, or else turn over a card not seen before."""
        if self.ended(state) is not None:
            return None
        shown = find_cells(state.sides, SHOWN)
        if len(shown) == 1:
            return self._known_partner(state, shown[0]) or self._new_card(state)
        known = find_cells(state.sides, KNOWN)
        return next((cell for cell in known if self._known_partner(state, cell)), None) or self._new_card(state)

    def metrics(self, state: PairsState, infos: Infos) -> Metrics:
        pairs = sum(line.count(FOUND) for line in state.sides) / 2
        share = 2 * pairs / self.config.cell_count
        return {"pairs found": share} | ({"cards per pair": state.turns / pairs} if pairs else {})

    def cells(self, state: PairsState) -> list[list[str]]:
        """Describe each card; all face-down cards read the same."""
        return [
            [KINDS[kind] if side in SHOWN + FOUND else DOWN for kind, side in zip(*line)]
            for line in zip(state.cards, state.sides)
        ]

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        if cell != DOWN:
            paint_colour_shape(canvas, cell, angle, similarity=self.config.similarity, theme=self.config.theme)
            return
        side, back = canvas.width, blend(COLOURS["blue"], (40, 50, 90), 0.6)
        canvas.rectangle(0, 0, side, side, back, radius=side * 0.09)
        edge = side * 0.07
        canvas.rectangle(edge, edge, side - 2 * edge, side - 2 * edge, blend(back, (255, 255, 255), 0.14), side * 0.06)
        for x, y in product((0.3, 0.7), repeat=2):
            draw_shape(canvas, "diamond", side * x, side * y, side * 0.13, back)
        draw_shape(canvas, "diamond", side / 2, side / 2, side * 0.13, back)

    def prompt(self, state: PairsState) -> str:
        left = self._turns - state.turns
        return self.fill_prompt(colours=", ".join(COLOUR_NAMES), shapes=", ".join(SHAPE_NAMES), left=left)

    def explain(self, state: PairsState, action: Cell) -> str:
        """State whether earlier images showed the card and its partner."""
        row, column = action
        if state.sides[row][column] == NEW:
            return f"I have not seen the card at {self.where(action)} yet."
        words = KINDS[self._kind(state, action)]
        seen = f"An earlier image showed a {words} at {self.where(action)}"
        partner = self._known_partner(state, action)
        if partner is None:
            return f"{seen}; I have not seen its partner."
        now = "is face up" if partner in find_cells(state.sides, SHOWN) else "was, too,"
        return f"{seen}, and its partner {now} at {self.where(partner)}."

    @property
    def _turns(self) -> int:
        return int(self.config.patience * self.config.cell_count)

    def _kind(self, state: PairsState, cell: Cell) -> int:
        return state.cards[cell[0]][cell[1]]

    def _known_partner(self, state: PairsState, cell: Cell) -> Cell | None:
        """Return a card's partner, or None if the partner has not been seen."""
        kind = self._kind(state, cell)
        seen = find_cells(state.sides, KNOWN + SHOWN)
        return next((other for other in seen if other != cell and self._kind(state, other) == kind), None)

    def _new_card(self, state: PairsState) -> Cell:
        """Return the first card that has never been seen, or else the first card that is face down."""
        return (find_cells(state.sides, NEW) or find_cells(state.sides, KNOWN))[0]
