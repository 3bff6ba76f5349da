"""Lights out: switch off all lamps; each press also switches the neighbours."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from vlmgym.errors import StateError
from vlmgym.sandbox.answers.cells import CELL, Cell, Cells
from vlmgym.sandbox.answers.choice import neighbours
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, cells_of
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step
from vlmgym.sandbox.drawing.board import Grid
from vlmgym.sandbox.drawing.canvas import Canvas, Colour

GLOW: Colour = (255, 214, 64)
BRIGHT: Colour = (255, 240, 170)
DARK: Colour = (66, 72, 88)
SOCKET: Colour = (40, 44, 56)

_STATEMENT = re.compile(rf"Pressing ({CELL}(?:, {CELL}){{0,99}}) switches off all lamps")

PROMPT_V1 = """\
The image shows lamps in {rows} rows and {columns} columns. {numbering} Yellow lamps are on, dark lamps are off. \
Pressing a lamp switches it and its neighbours above, below, left and right: those that are on go off, and those that \
are off go on. Switch off all lamps.
Actions: {actions}.
{form}"""


class LightsOutConfig(BoardConfig):
    """Configuration of lights out."""

    rows: int = config_field("reasoning", [3, 3, 4, 5, 6], "Rows of lamps.", ge=2, le=7)
    columns: int = config_field("reasoning", [3, 4, 4, 5, 6], "Columns of lamps.", ge=2, le=7)
    presses: int = config_field(
        "reasoning", [2, 3, 4, 7, 12], "Number of lamps pressed at random to make a board.", ge=1, le=49
    )

    def model_post_init(self, context: object) -> None:
        if self.presses > self.cell_count:
            raise ValueError(f"presses must be at most rows x columns = {self.cell_count}, got {self.presses}")


@dataclass(frozen=True, slots=True)
class LightsOutState:
    """Lit lamps as a bit mask of cells, row by row, and the number of presses needed at first (`par`)."""

    lit: NonNegativeInt
    par: PositiveInt
    variation_seed: int = 0


class LightsOut(BoardGame[LightsOutState, Cell]):
    """Switch off all lamps; each press also switches the neighbours.

    Description:
        Pressing a lamp toggles it and its neighbours in row and column. A board is made by pressing `presses` different
        lamps at random, so it can be solved by pressing these lamps once more, in any order.

    Observation:
        The lamps as an RGB image.

    Action:
        `MultiDiscrete([rows, columns])`: row and column of the lamp to press, from 0.

    Reward:
        The score is 1 - (presses needed now) / (presses needed at first), but at least 0: 1 if all lamps are off. The
        reward of a turn is the change in score, 0 for an illegal or unparsable answer.

    Episode end:
        All lamps are off. Metrics: solved, presses needed.
    """

    name = "lightsout"
    title = "Lights out"
    skills = ("planning", "search")
    reward_is_hint = True
    answer = Cells(1, "the lamp to press", verbs=("press", "switch", "toggle"))
    optimal_oracle = True
    Config = LightsOutConfig
    State = LightsOutState
    prompt_template = PROMPT_V1
    words: ClassVar = {"1": "on", "0": "off"}
    perception_form = "the board, one line per row, on or off for each lamp, separated by commas"

    def deal(self, rng: np.random.Generator) -> LightsOutState | None:
        """Press lamps at random; None if that leaves all of them off."""
        c, lit = self.config, 0
        for cell in rng.permutation(c.cell_count)[: c.presses].tolist():
            lit ^= self._effects[cell]
        return LightsOutState(lit, self._presses(lit).bit_count()) if lit else None

    def legal_actions(self, state: LightsOutState) -> tuple[Cell, ...]:
        return self.all_cells if state.lit else ()

    def step(self, state: LightsOutState, action: Cell, rng: np.random.Generator) -> Step[LightsOutState]:
        (cell,) = self.answer.cells(action)
        lit = state.lit ^ self._effects[self.index_of(cell)]
        after = LightsOutState(lit, state.par, state.variation_seed)
        return Step(after, self._score(after) - self._score(state))

    def ended(self, state: LightsOutState) -> str | None:
        return None if state.lit else "all lamps are off"

    def goal(self, state: LightsOutState) -> LightsOutState:
        return replace(state, lit=0)

    def best_action(self, state: LightsOutState) -> Cell | None:
        """First lamp, in reading order, of a shortest solution."""
        presses = cells_of(self._presses(state.lit))
        return self.cell_at(presses[0]) if presses else None

    def metrics(self, state: LightsOutState, infos: Infos) -> Metrics:
        return {"solved": float(not state.lit), "presses needed": float(self._presses(state.lit).bit_count())}

    def cells(self, state: LightsOutState) -> Grid:
        c = self.config
        return self.in_rows(f"{state.lit:0{c.cell_count}b}"[::-1])

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        side = canvas.width
        middle = side / 2
        canvas.rectangle(0, 0, side, side, self.tint(SOCKET), radius=side * 0.12)
        canvas.circle(middle, middle, side * 0.38, self.tint(GLOW if cell == "1" else DARK))
        if cell == "1":
            canvas.circle(middle, middle, side * 0.22, self.tint(BRIGHT))

    def explain(self, state: LightsOutState, action: Cell) -> str:
        """State a shortest solution."""
        cells = [self.where(self.cell_at(cell)) for cell in cells_of(self._presses(state.lit))]
        return f"Pressing {', '.join(cells)} switches off all lamps. I press {self.where(action)}."

    def check_reasoning(self, state: LightsOutState, text: str) -> list[bool]:
        """Check whether the presses switch off all lamps; there may be several such sets."""
        checks = []
        for match in _STATEMENT.finditer(text):
            lit, cells = state.lit, self._cells_in(match[0])
            for cell in filter(self.inside, cells):
                lit ^= self._effects[self.index_of(cell)]
            checks.append(lit == 0 and all(map(self.inside, cells)))
        return checks

    def _score(self, state: LightsOutState) -> float:
        return max(0.0, 1 - self._presses(state.lit).bit_count() / state.par)

    def _presses(self, lit: int) -> int:
        presses = fewest_presses(lit, self.config.rows, self.config.columns)
        if presses is None:
            raise StateError(f"lit={lit} is not a solvable board")
        return presses

    @property
    def _effects(self) -> tuple[int, ...]:
        return effects(self.config.rows, self.config.columns)


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# Fewest presses that switch off all lamps, by linear algebra modulo 2.
#
# The order of presses does not matter and pressing a lamp twice does nothing, so a solution is a set of cells. Sets are
# bit masks of cells, row by row. Two solutions of a board differ by a set of presses that changes nothing; boards of up
# to 7 x 7 have at most 2 ** 7 such sets.


@lru_cache
def effects(rows: int, columns: int) -> tuple[int, ...]:
    """For each cell, return the set of lamps that a press there toggles: the lamp itself and its neighbours."""
    near = neighbours(rows, columns)
    return tuple(1 << cell | sum(1 << other for _, other in near[cell]) for cell in range(rows * columns))


@lru_cache
def _basis(rows: int, columns: int) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, ...]]:
    """Return a basis of the presses' effects, by Gaussian elimination, and all sets of presses without effect.

    Each basis element is (lowest lamp, lamps toggled, presses); no two have the same lowest lamp.
    """
    basis: dict[int, tuple[int, int]] = {}
    idle = [0]
    for cell, lamps in enumerate(effects(rows, columns)):
        presses = 1 << cell
        while lamps and (lamps & -lamps) in basis:
            known = basis[lamps & -lamps]
            lamps, presses = lamps ^ known[0], presses ^ known[1]
        if lamps:
            basis[lamps & -lamps] = lamps, presses
        else:
            idle += [other ^ presses for other in idle]
    return tuple((low, *known) for low, known in sorted(basis.items())), tuple(idle)


@lru_cache(maxsize=1 << 16)
def fewest_presses(lit: int, rows: int, columns: int) -> int | None:
    """Return a smallest set of presses that switches off the lit lamps; None if no set does."""
    basis, idle = _basis(rows, columns)
    presses = 0
    for low, lamps, pressed in basis:
        if lit & low:
            lit, presses = lit ^ lamps, presses ^ pressed
    if lit:
        return None
    return min((presses ^ other for other in idle), key=lambda solution: (solution.bit_count(), solution))
