"""A complete small game; docs/adding_a_game.md explains its parts."""

from dataclasses import dataclass, replace
from itertools import product

from vlmgym import errors, register_game
from vlmgym.sandbox.answers.cells import Cells
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Step

PROMPT = "Switch off all lamps, one per turn. Rows and columns are numbered from {origin} at the top left.\n{form}"


class LampsConfig(BoardConfig):
    rows: int = config_field("reasoning", [2, 3, 4, 5, 6], "Rows of lamps.", ge=1)
    columns: int = config_field("reasoning", [2, 3, 4, 5, 6], "Columns of lamps.", ge=1)


@dataclass(frozen=True)
class LampsState:
    lit: tuple[tuple[int, int], ...]
    variation_seed: int = 0


@register_game
class Lamps(BoardGame[LampsState, tuple[int, int]]):
    """Switch off all lamps. Action: (row, column) of a lamp that is on. Reward: 1 per lamp."""

    name, Config, State, answer = "lamps", LampsConfig, LampsState, Cells(1)
    prompt_template = PROMPT
    perception_form = "the board, one line per row, on or off, comma-separated"

    def deal(self, rng):
        lamps = list(product(range(self.config.rows), range(self.config.columns)))
        return LampsState(tuple(lamp for lamp in lamps if rng.random() < 0.5) or (lamps[0],))

    def legal_actions(self, state):
        return state.lit

    def step(self, state, action, rng):
        if action not in state.lit:
            raise errors.IllegalAction(f"the lamp at {self.answer.format(action)} is not on")
        after = replace(state, lit=tuple(lamp for lamp in state.lit if lamp != action))
        return Step(after, 1.0)

    def ended(self, state):
        return None if state.lit else "all lamps are off"

    def cells(self, state):
        rows, columns = range(self.config.rows), range(self.config.columns)
        return [["on" if (row, column) in state.lit else "off" for column in columns] for row in rows]

    def paint_cell(self, canvas, cell, angle):
        centre, colour = canvas.width / 2, (250, 190, 40) if cell == "on" else (90, 90, 96)
        canvas.circle(centre, centre, canvas.width / 3, colour)
