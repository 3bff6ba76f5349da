"""Tic-tac-toe against an opponent of configurable strength."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.cells import Cell, Cells
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.drawing.palette import COLOURS, THEMES
from vlmgym.sandbox.drawing.shapes import turned
from vlmgym.sandbox.games.line_duel import FREE, OTHER, OWN, LineConfig, LineDuel, LineState

PROMPT_V1 = """\
The image shows a tic-tac-toe board with {rows} rows and {columns} columns. {numbering} You play X and your opponent \
plays O. You take turns; the first with 3 equal marks in a row, column or diagonal wins. A win scores 1, a draw 0.5, a \
loss 0. It is your turn.
Actions: {actions}.
{form}"""

_CROSS = [(-1, -1), (-0.76, -1), (0, -0.24), (0.76, -1), (1, -1), (1, -0.76), (0.24, 0), (1, 0.76), (1, 1), (0.76, 1),
          (0, 0.24), (-0.76, 1), (-1, 1), (-1, 0.76), (-0.24, 0), (-1, -0.76)]  # fmt: skip


class TicTacToeConfig(LineConfig):
    """Configuration of tic-tac-toe."""

    rows: int = config_field("reasoning", 3, "Rows of the board.", ge=3, le=3)
    columns: int = config_field("reasoning", 3, "Columns of the board.", ge=3, le=3)
    depth: int = config_field("reasoning", 9, "Moves that the opponent looks ahead; 9 is perfect play.", ge=1, le=9)


class TicTacToe(LineDuel[Cell]):
    """Line up three marks against an opponent.

    Description:
        The player has X and the opponent O; a coin decides who begins. With probability `skill` the opponent plays one
        of its best moves, which never lose at the default `depth`, otherwise a random move.

    Observation:
        The board as an RGB image.

    Action:
        `MultiDiscrete([3, 3])`: row and column of an empty cell, from 0.

    Reward:
        1 for a win, 0.5 for a draw; 0 for a loss, before the end, and for an illegal or unparsable answer.

    Episode end:
        A player has a line, or the board is full. Metric: result.
    """

    name = "tictactoe"
    skills = ("planning",)
    title = "Tic-tac-toe"
    answer = Cells(1, "an empty cell", verbs=("play", "mark", "place"), example=(0, 2))
    Config = TicTacToeConfig
    prompt_template = PROMPT_V1
    perception_form = "the board, one line per row, cells separated by commas, each X, O or empty"
    length, gravity = 3, False
    words: ClassVar[Mapping[str, str]] = {OWN: "X", OTHER: "O", FREE: "empty"}

    def action_at(self, row: int, column: int) -> Cell:
        return row, column

    def cell_of(self, state: LineState, action: Cell) -> Cell:
        ((row, column),) = self.answer.cells(action)
        if state.board[row][column] != FREE:
            raise IllegalAction(f"the cell {self.where(action)} is not empty")
        return row, column

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        if cell == FREE:
            return
        side, theme = canvas.width, THEMES[self.config.theme]
        canvas.rectangle(0, 0, side, side, theme.tile, radius=side * 0.09)
        colour = self.tint(COLOURS["blue" if cell == OWN else "red"])
        if cell == OWN:
            canvas.polygon(turned(_CROSS, side / 2, side / 2, side * 0.29, angle), colour)
        else:
            canvas.circle(side / 2, side / 2, side * 0.33, colour)
            canvas.circle(side / 2, side / 2, side * 0.22, theme.tile)
