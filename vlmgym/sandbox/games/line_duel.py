"""Games against an opponent of configurable strength, won by completing a line of pieces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import product
from typing import ClassVar, NamedTuple

import numpy as np

from vlmgym.errors import IllegalAction
from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.answers.cells import Cell, Cells
from vlmgym.sandbox.answers.choice import Number
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, pick
from vlmgym.sandbox.drawing.canvas import COLOURS, THEMES, Canvas, Colour, ThemeName, blend
from vlmgym.sandbox.drawing.shapes import turned

OWN, OTHER, FREE = "X", "O", "."
"""Characters for the player's, the opponent's and free cells."""
REWARDS: Mapping[str | None, float] = {"won": 1.0, "drawn": 0.5}
ORACLE_NODES = 20_000
"""Approximate maximum number of positions that the oracle searches per move, which takes about 0.05 s."""


FRAMES: Mapping[ThemeName, Colour] = {"light": (46, 98, 176), "dark": (30, 66, 126)}
"""Colour of the frame that holds the pieces of four in a row, by theme."""


class LineConfig(BoardConfig):
    """Config fields of games against an opponent."""

    skill: float = config_field(
        "reasoning", [0.0, 0.25, 0.5, 0.75, 1.0], "Probability that the opponent plays its best move.", ge=0.0, le=1.0
    )
    depth: int = config_field("reasoning", 2, "Moves that the opponent looks ahead.", ge=1, le=9)


@dataclass(frozen=True, slots=True)
class LineState:
    """A board as rows from top to bottom: `X` for the player, `O` for the opponent, `.` for a free cell."""

    board: tuple[str, ...]
    variation_seed: int = 0


class LineDuel(BoardGame[LineState, ActionT]):
    """A game of two players who take turns; the first to make a line wins."""

    State = LineState
    prediction_form = "the board after your answer, before your opponent's, in the same form"
    length: ClassVar[int]
    """Number of pieces in a line."""
    gravity: ClassVar[bool]
    """True if pieces fall to the lowest free cell of a column."""

    @abstractmethod
    def action_at(self, row: int, column: int) -> ActionT:
        """Action that places a piece in a cell."""

    @abstractmethod
    def cell_of(self, state: LineState, action: ActionT) -> tuple[int, int]:
        """Return the free cell where an action places a piece; raise `IllegalAction` without one."""

    def start(self, rng: np.random.Generator) -> LineState:
        variation_seed = int(rng.integers(2**32))  # before the first move, unlike in other games
        return replace(self.deal(rng), variation_seed=variation_seed)

    def deal(self, rng: np.random.Generator) -> LineState:
        """Make an empty board; with probability 0.5, the opponent plays first."""
        state = LineState((FREE * self.config.columns,) * self.config.rows)
        return self._reply(state, rng) if rng.random() < 0.5 else state

    def legal_actions(self, state: LineState) -> tuple[ActionT, ...]:
        if self.ended(state) is not None:
            return ()
        moves = self.rules.moves(sum(_pieces(state.board)))
        cells = sorted(map(self._cell, moves), key=lambda cell: cell[::-1] if self.gravity else cell)
        return tuple([self.action_at(*cell) for cell in cells])

    def step(self, state: LineState, action: ActionT, rng: np.random.Generator) -> Step[LineState]:
        cell = self.cell_of(state, action)
        after = replace(state, board=with_cell(state.board, cell, OWN))
        if self.ended(after) is None:
            after = self._reply(after, rng)
        return Step(after, REWARDS.get(self.ended(after), 0.0))

    def after_move(self, state: LineState, action: ActionT) -> str:
        """Describe the board before the opponent's reply."""
        return self.describe(replace(state, board=with_cell(state.board, self.cell_of(state, action), OWN)))

    def ended(self, state: LineState) -> str | None:
        return _result(self.rules, state.board)

    def best_action(self, state: LineState) -> ActionT | None:
        """Return the best move found by searching at most about `ORACLE_NODES` positions."""
        if self.ended(state) is not None:
            return None
        return self.action_at(*self._cell(search(self.rules, *_pieces(state.board), ORACLE_NODES).moves[0]))

    def metrics(self, state: LineState, infos: Infos) -> Metrics:
        return {"result": self.ended(state) or "unfinished"}

    def explain(self, state: LineState, action: ActionT) -> str:
        """State whether the move completes or blocks a line."""
        player, opponent = _pieces(state.board)
        row, column = self.cell_of(state, action)
        square = self.rules.square(self.config.rows - 1 - row, column)
        if self.rules.completes(player, square):
            reason = f"it completes my line of {self.length}"
        elif self.rules.completes(opponent, square):
            reason = f"otherwise the opponent could complete a line of {self.length} there"
        elif any(
            self.rules.completes(side, move)
            for move in self.rules.moves(player | opponent)
            for side in (player, opponent)
        ):
            reason = "I ignore a line that could be completed now"
        else:
            reason = f"nobody can complete a line of {self.length} with the next piece"
        return f"I choose {self.answer.format(action)}: {reason}."

    @cached_property
    def rules(self) -> LineRules:
        """Rules for the configured board."""
        return line_rules(self.config.rows, self.config.columns, self.length, self.gravity)

    def _cell(self, square: int) -> tuple[int, int]:
        column, height = divmod(square.bit_length() - 1, self.config.rows + 1)
        return self.config.rows - 1 - height, column

    def _reply(self, state: LineState, rng: np.random.Generator) -> LineState:
        """Play the opponent's move."""
        player, opponent = _pieces(state.board)
        moves: Sequence[int] = self.rules.moves(player | opponent)
        if rng.random() < self.config.skill:
            moves = best_moves(self.rules, opponent, player, self.config.depth).moves
        cell = self._cell(pick(rng, moves))
        return replace(state, board=with_cell(state.board, cell, OTHER))


def _pieces(board: tuple[str, ...]) -> tuple[int, int]:
    """Return the player's and the opponent's squares as sets; see below."""
    text = FREE.join(["".join(column) for column in zip(*reversed(board))])[::-1]
    player = int("".join(["1" if cell == OWN else "0" for cell in text]), 2)
    return player, int("".join(["1" if cell == OTHER else "0" for cell in text]), 2)


@lru_cache(maxsize=4096)  # each turn asks several times
def _result(rules: LineRules, board: tuple[str, ...]) -> str | None:
    player, opponent = _pieces(board)
    if rules.has_line(player):
        return "won"
    if rules.has_line(opponent):
        return "lost"
    return None if any(FREE in row for row in board) else "drawn"


# Tic-tac-toe ----------------------------------------------------------------------------------------------------------

TICTACTOE_PROMPT_V1 = """\
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
    prompt_template = TICTACTOE_PROMPT_V1
    perception_form = "the board, one line per row, cells separated by commas, each X, O or empty"
    length, gravity = 3, False
    words: ClassVar = {OWN: "X", OTHER: "O", FREE: "empty"}

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


# Four in a row --------------------------------------------------------------------------------------------------------

FOURINAROW_PROMPT_V1 = """\
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
    prompt_template = FOURINAROW_PROMPT_V1
    perception_form = "the board, one line per row, cells separated by commas, each red, yellow or empty"
    length, gravity = 4, True
    joined = True
    words: ClassVar = {OWN: "red", OTHER: "yellow", FREE: "empty"}

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
        canvas.rectangle(0, 0, side, side, self.tint(FRAMES[self.config.theme]))
        canvas.circle(side / 2, side / 2, side * 0.44, theme.page)
        if cell != FREE:
            colour = self.tint(COLOURS["red" if cell == OWN else "yellow"])
            canvas.circle(side / 2, side / 2, side * 0.42, colour)
            canvas.circle(side / 2, side / 2, side * 0.30, blend(colour, theme.tile, 0.18))

    def prompt(self, state: LineState) -> str:
        return self.fill_prompt(example=self.answer.format(3))


# Search ---------------------------------------------------------------------------------------------------------------
#
# Rules and search for games won by completing a line of pieces: tic-tac-toe and four in a row.
#
# A board is two sets of squares, one for the player to move and one for the other player. A set is an int; the bit
# column * (rows + 1) + height stands for the square in that column, at that height above the bottom row. With gravity,
# adding the bottom row to the set of all taken squares therefore carries into the first free square of each column.

WIN = 1_000_000
"""Value of a win by the last move that is searched; a win n moves earlier is worth n more."""
DEEPER = 4
"""Assumed minimum growth factor of the number of positions per additional move."""


class BestMoves(NamedTuple):
    """Result of a search.

    Attributes:
        moves: The best moves, as squares.
        value: Value of these moves for the player to move.
        nodes: Number of positions searched.
    """

    moves: tuple[int, ...]
    value: int
    nodes: int


class LineRules:
    """Rules for one board size and line length, with or without gravity."""

    def __init__(self, rows: int, columns: int, length: int, gravity: bool) -> None:
        self.rows, self.gravity = rows, gravity
        self.lines: list[int] = []
        for height, column, (up, right) in product(range(rows), range(columns), ((0, 1), (1, 0), (1, 1), (1, -1))):
            last_height, last_column = height + up * (length - 1), column + right * (length - 1)
            if last_height < rows and 0 <= last_column < columns:
                self.lines.append(sum(self.square(height + up * i, column + right * i) for i in range(length)))
        squares = [self.square(height, column) for column in range(columns) for height in range(rows)]
        self.weights = {square: sum(bool(line & square) for line in self.lines) for square in squares}
        self._board, self._bottom = sum(squares), sum(squares[::rows])
        self._groups = sorted(squares, key=lambda square: -self.weights[square])
        """Sets of squares of which at most one can be taken next, the most promising first."""
        if gravity:
            middle = sorted(range(columns), key=lambda column: abs(2 * column + 1 - columns))
            self._groups = [sum(squares[column * rows :][:rows]) for column in middle]

    def square(self, height: int, column: int) -> int:
        """Return the square of a column at a height above the bottom row, as a set with one element."""
        return 1 << (column * (self.rows + 1) + height)

    def open_squares(self, taken: int) -> int:
        """Return the set of squares that can be taken next."""
        return (taken + self._bottom if self.gravity else ~taken) & self._board

    def moves(self, taken: int) -> list[int]:
        """List the squares that can be taken next, the most promising first."""
        squares = self.open_squares(taken)
        return [square for group in self._groups if (square := squares & group)]

    def completes(self, squares: int, square: int) -> bool:
        """Return whether taking a square completes a line for the player who has `squares`."""
        return bool(threats(self, squares) & square)

    def has_line(self, squares: int) -> bool:
        """Return whether squares contain a line."""
        return any(squares & line == line for line in self.lines)


@cache
def line_rules(rows: int, columns: int, length: int, gravity: bool) -> LineRules:
    """Return the rules for these arguments; cached."""
    return LineRules(rows, columns, length, gravity)


@lru_cache(maxsize=1 << 14)  # most positions of a search share their player's squares with others
def threats(rules: LineRules, squares: int) -> int:
    """Return the set of squares, open or not, that complete a line for the player who has `squares`."""
    completing = 0
    for line in rules.lines:
        missing = line & ~squares
        if not missing & missing - 1:
            completing |= missing
    return completing


@lru_cache(maxsize=1 << 16)
def best_moves(rules: LineRules, player: int, opponent: int, depth: int) -> BestMoves:
    """Search `depth` moves ahead, and one more move for wins; return all moves with the highest value.

    If the search ends undecided, the value is the number of lines through each of the player's squares, summed, minus
    the same sum for the other player.
    """
    moves = rules.moves(player | opponent)
    if winning := tuple(move for move in moves if rules.completes(player, move)):
        return BestMoves(winning, WIN + depth, 1)
    nodes = 0

    def value_of(player: int, opponent: int, depth: int, alpha: int, beta: int, score: int) -> int:
        """Search by negamax with alpha-beta pruning; `score` is the value if the search ends here, undecided."""
        nonlocal nodes
        nodes += 1
        squares = rules.open_squares(player | opponent)
        if squares & threats(rules, player):
            return WIN + depth
        if not squares:
            return 0
        if depth <= 0:
            return score
        blocks = squares & threats(rules, opponent)
        moves = [blocks & -blocks] if blocks else rules.moves(player | opponent)
        best = -2 * WIN
        for move in moves:
            after = -score - rules.weights[move]
            best = max(best, -value_of(opponent, player | move, depth - 1, -beta, -max(alpha, best), after))
            if best >= beta:
                break
        return best

    score = sum(weight * (bool(player & square) - bool(opponent & square)) for square, weight in rules.weights.items())
    best = -2 * WIN
    chosen: list[int] = []
    for move in moves:
        after = -score - rules.weights[move]
        value = -value_of(opponent, player | move, depth - 1, -2 * WIN, 1 - best, after)
        if value > best:
            best, chosen = value, []
        if value == best:
            chosen.append(move)
    return BestMoves(tuple(chosen), best, nodes)


def search(rules: LineRules, player: int, opponent: int, nodes: int) -> BestMoves:
    """Search ever deeper until the result is certain or the next search would likely exceed `nodes` in total."""
    searched, left = 0, len(rules.weights) - (player | opponent).bit_count()
    for depth in range(1, left + 1):
        best = best_moves(rules, player, opponent, depth)
        searched += best.nodes
        if abs(best.value) >= WIN or searched * DEEPER > nodes:
            break
    return best._replace(nodes=searched)
