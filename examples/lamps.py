"""A complete small game of a user; docs/adding_a_game.md explains it."""

from dataclasses import dataclass
from itertools import product

from vlmgym import errors, register_game
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_board_perception
from vlmgym.sandbox.core.game import Step
from vlmgym.sandbox.core.response_format import INSTRUCTIONS_V1

PROMPT = "Switch the lamps off, one a turn. Rows and columns count from {origin} at the top left.\n" + (
    INSTRUCTIONS_V1.format(perception="the lamps, one line a row, on or off, apart by commas", answer="(row, column)")
)


class LampsConfig(BoardConfig):
    levels = with_board_perception({level: {"rows": level + 1, "columns": level + 1} for level in range(1, 6)})


@dataclass(frozen=True)
class LampsState:
    lit: tuple[tuple[int, int], ...]


@register_game
class Lamps(BoardGame[LampsState, tuple[int, int]]):
    """Switch off all lamps. Action: (row, column) of a lamp that is on. Reward: 1 for each."""

    name, Config, State, cells_in_action = "lamps", LampsConfig, LampsState, 1

    def start(self, rng):
        places = list(product(range(self.config.rows), range(self.config.columns)))
        return LampsState(tuple(place for place in places if rng.random() < 0.5) or (places[0],))

    def legal_actions(self, state):
        return state.lit

    def step(self, state, action, rng):
        if action not in state.lit:
            raise errors.IllegalAction(f"no lamp is on at {self.format(action)}")
        after = LampsState(tuple(place for place in state.lit if place != action))
        return Step(after, 1.0, self.ended(after) is not None)

    def ended(self, state):
        return None if state.lit else "all lamps are off"

    def cells(self, state):
        rows, columns = range(self.config.rows), range(self.config.columns)
        return [["on" if (row, column) in state.lit else "off" for column in columns] for row in rows]

    def paint_cell(self, canvas, cell, angle):
        middle, colour = canvas.width / 2, (250, 190, 40) if cell == "on" else (90, 90, 96)
        canvas.circle(middle, middle, canvas.width / 3, colour)

    def prompt(self, state):
        return PROMPT.format(origin=self.config.origin)
