"""Four in a row: drop discs into columns against an opponent of configurable strength."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.choice import Number
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.drawing.palette import COLOURS, THEMES, blend
from vlmgym.sandbox.games.line_duel import FREE, OTHER, OWN, LineConfig, LineDuel, LineState

PROMPT_V1 = """\
The image shows a board of four in a row with {rows} rows and {columns} columns. Columns are numbered from {origin} at \
the left. You play red and your opponent plays yellow. You take turns to drop a disc into a column, where it falls to \
the lowest empty cell. The first with 4 discs in an unbroken line along a row, column or diagonal wins. A win scores \
1, a draw 0.5, a loss 0. It is your turn.
Actions: the number of a column that is not full, for example {example}.
{form}"""


class FourInARowConfig(LineConfig):
    """Configuration of four in a row."""

    rows: int = config_field("reasoning", 6, "Rows of the board.", ge=4, le=10)
    columns: int = config_field("reasoning", 7, "Columns of the board.", ge=4, le=10)
    skill: float = config_field(
        "reasoning", [0.0, 0.2, 0.5, 0.75, 1.0], "Probability that the opponent plays its best move.", ge=0.0, le=1.0
    )
    depth: int = config_field("reasoning", [2, 2, 2, 4, 6], "Moves that the opponent looks ahead.", ge=1, le=7)


class FourInARow(LineDuel[int]):
    """Drop discs to line up four of them against an opponent.

    Description:
        The player has red discs and the opponent yellow ones; a coin decides who begins. With probability `skill` the
        opponent plays the best move found by looking `depth` moves ahead, otherwise a random one. At depth 2 it
        completes and blocks lines; at depth 6 it is a strong player. No depth is perfect on the default board.

    Observation:
        The board as an RGB image.

    Action:
        `Discrete(columns)`: column of the disc, from 0.

    Reward:
        1 for a win, 0.5 for a draw; 0 for a loss, before the end, and for an illegal or unparsable answer.

    Episode end:
        A player has a line, or the board is full. Metric: result.
    """

    name = "fourinarow"
    skills = ("planning", "search")
    title = "Four in a row"
    answer = Number(
        lambda config: range(config.columns),
        "the number of a column",
        ("column", "col", "drop", "play"),
        from_origin=True,
    )
    Config = FourInARowConfig
    prompt_template = PROMPT_V1
    perception_form = "the board, one line per row, cells separated by commas, each red, yellow or empty"
    length, gravity = 4, True
    words: ClassVar[Mapping[str, str]] = {OWN: "red", OTHER: "yellow", FREE: "empty"}

    def action_at(self, row: int, column: int) -> int:
        return column

    def cell_of(self, state: LineState, action: int) -> tuple[int, int]:
        self.answer.check(action)
        free = [row for row, line in enumerate(state.board) if line[action] == FREE]
        if not free:
            raise IllegalAction(f"column {self.answer.format(action)} is full")
        return free[-1], action

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        side, theme = canvas.width, THEMES[self.config.theme]
        canvas.circle(side / 2, side / 2, side * 0.44, theme.board)
        if cell != FREE:
            colour = self.tint(COLOURS["red" if cell == OWN else "yellow"])
            canvas.circle(side / 2, side / 2, side * 0.42, colour)
            canvas.circle(side / 2, side / 2, side * 0.30, blend(colour, theme.tile, 0.18))

    def prompt(self, state: LineState) -> str:
        return self.fill_prompt(example=self.answer.format(3))
