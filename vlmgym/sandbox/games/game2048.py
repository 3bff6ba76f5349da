"""2048: slide tiles to merge equal ones; each move adds a new tile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.choice import DIRECTIONS, Directions
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, find_cells, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Infos, Metrics, Step, pick
from vlmgym.sandbox.drawing.canvas import Canvas, Colour

Line = tuple[int, ...]
Board = tuple[Line, ...]

PROMPT_V1 = """\
The image shows a 2048 board with {rows} rows and {columns} columns. {numbering} A move slides all tiles as far as \
possible in one direction. Two equal tiles that collide merge into their sum, which is added to the score; each tile \
merges at most once per move. After each move, a new tile, 2 or 4, appears in an empty cell. A move that changes \
nothing is illegal. {goal}
Actions: {actions}.
{form}"""


_TILES: Mapping[int, Colour] = {
    2: (240, 230, 218),
    4: (239, 222, 192),
    8: (246, 178, 114),
    16: (247, 148, 92),
    32: (246, 120, 88),
    64: (236, 86, 54),
    128: (238, 206, 96),
    256: (236, 196, 64),
    512: (222, 176, 30),
    1024: (126, 178, 72),
    2048: (46, 150, 96),
    4096: (30, 138, 160),
    8192: (44, 104, 196),
}
_LARGE: Colour = (84, 58, 140)
_DARK_INK: Colour = (110, 98, 86)
_LIGHT_INK: Colour = (255, 252, 246)


class Config2048(BoardConfig):
    """Configuration of 2048."""

    rows: int = config_field("reasoning", [6, 5, 4, 3, 3], "Rows of the board.", ge=3, le=8)
    columns: int = config_field("reasoning", [6, 5, 4, 4, 3], "Columns of the board.", ge=3, le=8)
    four_probability: float = config_field("reasoning", 0.1, "Probability that a new tile is a 4.", ge=0.0, le=1.0)
    goal: int | None = config_field(
        "reasoning", None, "Tile that wins and ends the game; None plays until no move is left.", ge=8, le=2**20
    )

    def model_post_init(self, context: object) -> None:
        if self.goal is not None and self.goal & (self.goal - 1):
            raise ValueError(f"goal must be a power of 2 from 8 to 1048576, got {self.goal}")


@dataclass(frozen=True, slots=True)
class State2048:
    """A 2048 board of tile values, rows x columns, 0 for an empty cell."""

    board: Board
    variation_seed: int = 0


class Game2048(BoardGame[State2048, int]):
    """Slide the tiles of a board to merge equal numbers.

    Description:
        A move slides all tiles as far as possible in one direction. Two equal tiles that collide merge into their sum,
        each tile at most once per move. A 2 or a 4 then appears in a random empty cell. The board starts with two such
        tiles. The rules match the gymnasium-2048 package.

    Observation:
        The board as an RGB image, without the score.

    Action:
        `Discrete(4)`: 0 up, 1 right, 2 down, 3 left. A move that changes nothing is illegal.

    Reward:
        The sum of the tiles created by merging; 0 for an illegal or unparsable answer.

    Episode end:
        No move is left or, if `goal` is set, a tile of this value has been made. Metric: largest tile.
    """

    name = "2048"
    skills = ("arithmetic", "planning")
    Config = Config2048
    State = State2048
    prompt_template = PROMPT_V1
    perception_form = "the board, one line per row, numbers separated by commas, 0 for an empty cell"
    prediction_form = "the board after your answer, before the new tile appears, in the same form"
    answer = Directions(("move", "slide", "swipe", "go"))

    def start(self, rng: np.random.Generator) -> State2048:
        variation_seed = int(rng.integers(2**32))  # before the tiles, unlike in other games
        return replace(self.deal(rng), variation_seed=variation_seed)

    def deal(self, rng: np.random.Generator) -> State2048:
        empty: Board = ((0,) * self.config.columns,) * self.config.rows
        return State2048(self._spawn(self._spawn(empty, rng), rng))

    def legal_actions(self, state: State2048) -> tuple[int, ...]:
        if self._reached_goal(state.board):
            return ()
        rows, columns = _prospects(state.board), _prospects(zip(*state.board))
        changes = (columns.to_start, rows.to_end, columns.to_end, rows.to_start)
        return tuple([action for action in range(4) if changes[action]])

    def step(self, state: State2048, action: int, rng: np.random.Generator) -> Step[State2048]:
        self.answer.check(action)
        board, reward = slide(state.board, action)
        if board == state.board:
            raise IllegalAction(f"sliding {DIRECTIONS[action]} changes nothing")
        after = State2048(self._spawn(board, rng), state.variation_seed)
        return Step(after, float(reward))

    def after_move(self, state: State2048, action: int) -> str:
        self.step(state, action, np.random.default_rng(0))  # raises IllegalAction
        return self.describe(State2048(slide(state.board, action)[0], state.variation_seed))

    def ended(self, state: State2048) -> str | None:
        if self._reached_goal(state.board):
            return "goal reached"
        return None if _can_move(state.board) else "no move is left"

    def best_action(self, state: State2048) -> int | None:
        return Search(state.board, self.config.four_probability, self.config.goal).action

    def check_state(self, state: State2048) -> None:
        super().check_state(state)
        if other := [tile for row in state.board for tile in row if tile and (tile < 2 or tile.bit_count() > 1)]:
            raise StateError(f"the tile {other[0]} is not a power of 2")

    def metrics(self, state: State2048, infos: Infos) -> Metrics:
        """Report the largest tile as a string, so that the summary counts episodes by their largest tile."""
        return {"largest tile": str(max(map(max, state.board)))}

    def paint_cell(self, canvas: Canvas, cell: int, angle: float) -> None:
        if not cell:
            return
        side = canvas.width
        colour = self.tint(_TILES.get(cell, _LARGE))
        canvas.rectangle(0, 0, side, side, colour, radius=side * 0.09)
        digits = len(str(cell))
        height = side * (0.36 if digits <= 2 else 0.30)
        ink = _DARK_INK if cell <= 4 else _LIGHT_INK
        canvas.text(str(cell), side / 2, side / 2, height, ink, max_width=side * 0.82, angle=angle)

    def prompt(self, state: State2048) -> str:
        c = self.config
        goal = f"Reach the tile {c.goal} to win." if c.goal else "Score as high as you can before no move is left."
        return self.fill_prompt(goal=goal)

    def rule_action(self, state: State2048) -> int | None:
        """Merge as many pairs as possible; of several such moves, choose the one towards the heaviest edge.

        An edge is as heavy as its tiles' sum exceeds that of the opposite edge. This keeps large tiles together: over
        100 turns, scores are 0.97 of the oracle's, instead of 0.94 with ties broken at random.
        """
        by_axis = _prospects(zip(*state.board)).merges, _prospects(state.board).merges
        merges = {action: by_axis[action % 2] for action in self.legal_actions(state)}
        most = max(merges.values(), default=0)
        (top, *_, bottom), (left, *_, right) = (list(map(sum, lines)) for lines in (state.board, zip(*state.board)))
        weights = {0: top - bottom, 1: right - left, 2: bottom - top, 3: left - right}
        best = [action for action in merges if merges[action] == most]
        return max(best, key=weights.__getitem__, default=None)

    def explain(self, state: State2048, action: int) -> str:
        """State how many pairs merge or where tiles can slide, for each row, all rows, each column and all columns."""
        rows = _in_words(state.board, "left", "right")
        return f"Rows: {rows}. Columns: {_in_columns(state.board)}. I slide {DIRECTIONS[action]}."

    def check_reasoning(self, state: State2048, text: str) -> list[bool]:
        """Check each line, the lines together, and whether the slide is legal."""
        words = {"Rows:": lambda: _in_words(state.board, "left", "right"), "Columns:": lambda: _in_columns(state.board)}
        lines, together, checks = list[str](), None, list[bool]()
        for match in _STATEMENT.finditer(text):
            if match[0] in words:
                *lines, together = (true[0] for true in _STATEMENT.finditer(words[match[0]]()))
            elif match["slide"]:
                checks.append(match["slide"] in [DIRECTIONS[action] for action in self.legal_actions(state)])
            elif together is not None:
                checks.append(match[0] == (lines.pop(0) if lines and match["line"] else together))
        return checks

    def _reached_goal(self, board: Board) -> bool:
        goal = self.config.goal
        return goal is not None and max(map(max, board)) >= goal

    def _spawn(self, board: Board, rng: np.random.Generator) -> Board:
        """Add a new tile in a random empty cell; after a legal move, there is at least one."""
        empty = find_cells(board, (0,))
        cell = pick(rng, empty)
        return with_cell(board, cell, (4 if rng.random() < self.config.four_probability else 2,))


def slide(board: Board, action: int) -> tuple[Board, int]:
    """Slide a board in a direction; return the board before a new tile appears, and the sum of the merged tiles.

    Lines are slid by gymnasium-2048's `TwentyFortyEightEnv.apply_action`; the results are cached.
    """
    vertical, reverse = action in (0, 2), action in (1, 2)
    lines = zip(*board) if vertical else board
    moved, score = [], 0
    for line in lines:
        after, gained = _slide_left(line[::-1] if reverse else line)
        moved.append(after[::-1] if reverse else after)
        score += gained
    return (tuple(zip(*moved)) if vertical else tuple(moved)), score


def _can_move(board: Board) -> bool:
    """Return whether any slide can change a board; the board must have at least one tile.

    True if there is an empty cell or an equal adjacent pair.
    """
    if any(0 in row for row in board):
        return True
    return any(a == b for line in (*board, *zip(*board)) for a, b in pairwise(line))


class _Prospects(NamedTuple):
    """Effect of sliding one or more lines.

    Attributes:
        merges: Number of pairs that merge, the same in both directions.
        to_start: Whether any line changes if it slides to its start.
        to_end: Whether any line changes if it slides to its end.
    """

    merges: int
    to_start: bool
    to_end: bool

    def in_words(self, start: str, end: str) -> str:
        if self.merges:
            return str(self.merges)
        return "both" if self.to_start and self.to_end else start if self.to_start else end if self.to_end else "stuck"


@lru_cache(maxsize=1 << 18)
def _line_prospects(line: Line) -> _Prospects:
    slid, reversed_line = _slide_left(line)[0], line[::-1]
    return _Prospects(slid.count(0) - line.count(0), slid != line, _slide_left(reversed_line)[0] != reversed_line)


def _prospects(lines: Iterable[Line]) -> _Prospects:
    merges, to_start, to_end = zip(*map(_line_prospects, lines))
    return _Prospects(sum(merges), any(to_start), any(to_end))


def _in_words(lines: Board, start: str, end: str) -> str:
    """State each line with its prospects, then the prospects of all lines: `0 4 8 2 (left) 2 2 0 0 (1), together 1`."""
    words = [f"{' '.join(map(str, line))} ({_line_prospects(line).in_words(start, end)})" for line in lines]
    return f"{' '.join(words)}, together {_prospects(lines).in_words(start, end)}"


def _in_columns(board: Board) -> str:
    return _in_words(tuple(zip(*board)), "up", "down")


_STATEMENT = re.compile(r"\b(?:Rows:|Columns:|(?P<line>\d[\d ]{0,99} \(\w+\))|together \w+|I slide (?P<slide>\w+))")
"""Statements of `Game2048.explain`, and the heads of its lists of lines."""


@lru_cache(maxsize=1 << 18)
def _slide_left(row: Line) -> tuple[Line, int]:
    from gymnasium_2048.envs.twenty_forty_eight import TwentyFortyEightEnv  # imports pygame

    exponents = np.array([[tile.bit_length() - 1 if tile else 0 for tile in row]], dtype=np.uint8)
    after, score, _ = TwentyFortyEightEnv.apply_action(exponents, DIRECTIONS.index("left"))
    return tuple(1 << int(exponent) if exponent else 0 for exponent in after[0]), int(score)


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# Expectimax search for 2048 on boards of any size.
#
# Each layer of the tree is one uint8 array of exponents (1 for the tile 2, 2 for the tile 4, 0 for an empty cell) with
# shape (rows, columns, boards), so a few dozen NumPy calls slide and evaluate thousands of boards. A budget bounds the
# cost of a move: the search is deep on crowded boards, where depth matters, and shallow on open boards. The search is
# deterministic.
#
# Leaves are evaluated row by row and column by column with the features of nneonneo's 2048-ai: empty cells and equal
# neighbours raise the value; tiles, especially large ones, and breaks in monotonicity lower it.
#
# On 4 x 4 boards, it reaches the 2048 tile within 1200 moves in 99 of 100 games, with a mean CPU time of 3.2 ms per
# move:
#
#     python -m benchmarks.oracles 2048 --episodes 100 --max-turns 1200

Boards = NDArray[np.uint8]
Values = NDArray[np.float64]

BUDGET = 300_000
"""Maximum estimated number of cells in the last layer, over all boards."""
MAX_DEPTH = 8
"""Maximum search depth in moves; reached only on almost full boards."""

LINE_VALUE = 200_000
"""Base value of each row and column, so that every board is worth more than a loss, which has the value 0."""
EMPTY_WEIGHT = 270
MERGE_WEIGHT = 700
MONOTONICITY_WEIGHT = 47
"""Cost of breaking the monotonicity of a line, per unit of difference in the fourth power of the exponents."""
TILE_WEIGHT = 11
"""Cost of a tile, per unit of its exponent to the power of 3.5."""
GOAL_VALUE = 1e12
"""Value of reaching the goal; it is divided by the number of moves needed."""

_EXPECTED_MOVES = 3.5
"""Assumed mean number of legal moves per board, to estimate the size of the next layer."""
_CELLS_PER_BLOCK = 1 << 16
"""Number of cells evaluated together; fits in a CPU cache."""


class Search:
    """A search for the best move on a board of tile values; reaching the tile `goal`, if given, wins.

    Attributes:
        values: Value of each of the four moves; -1 for a move that changes nothing.
        depth: Search depth in moves.
        nodes: Number of boards in the tree, counted after each move and after each new tile.
    """

    def __init__(
        self,
        board: Sequence[Sequence[int]],
        four_probability: float = 0.1,
        goal: int | None = None,
        budget: int = BUDGET,
    ) -> None:
        self._new_tiles = [(e, p) for e, p in ((1, 1 - four_probability), (2, four_probability)) if p > 0]
        self._goal = None if goal is None else goal.bit_length() - 1
        self._budget = budget
        self.depth = self.nodes = 0
        self.values: tuple[float, ...] = (-1.0,) * 4
        root = np.array([[max(0, tile.bit_length() - 1) for tile in row] for row in board], dtype=np.uint8)
        if self._goal is None or root.max() < self._goal:
            self.values = tuple(self._own_turn(root[:, :, None], 1)[:, 0].tolist())

    @property
    def action(self) -> int | None:
        """The best move (0 up, 1 right, 2 down, 3 left), or None if the game has ended."""
        best = max(self.values)
        return None if best < 0 else self.values.index(best)

    def _own_turn(self, boards: Boards, depth: int) -> Values:
        """Return the values of the four moves, shape (4, boards); -1 where a move changes nothing."""
        moved = slide_all(boards)
        legal = (moved != boards[:, :, None]).any(axis=(0, 1))
        values = np.full(legal.shape, -1.0)
        if legal.any():
            values[legal] = self._after_move(moved[:, :, legal], depth)
        return values

    def _after_move(self, boards: Boards, depth: int) -> Values:
        """Return the values of boards before a new tile appears, shape (boards,)."""
        self.depth = max(self.depth, depth)
        self.nodes += boards.shape[2]
        children = np.count_nonzero(boards == 0) * len(self._new_tiles)
        deeper = depth < MAX_DEPTH and children * _EXPECTED_MOVES * boards[..., 0].size <= self._budget
        values = self._new_tile(boards, depth) if deeper else heuristic_values(boards)
        if self._goal is not None:
            values[boards.max(axis=(0, 1)) >= self._goal] = GOAL_VALUE / depth
        return values

    def _new_tile(self, boards: Boards, depth: int) -> Values:
        """Return the expected values over all new tiles, shape (boards,)."""
        row, column, parent = np.nonzero(boards == 0)
        after = np.tile(boards[:, :, parent], len(self._new_tiles))
        weights = np.empty(after.shape[2])
        share = 1.0 / np.bincount(parent, minlength=boards.shape[2])[parent]
        for i, (exponent, probability) in enumerate(self._new_tiles):
            child = np.arange(len(parent)) + i * len(parent)
            after[row, column, child] = exponent
            weights[child] = probability * share
        self.nodes += after.shape[2]
        values = np.maximum(self._own_turn(after, depth + 1).max(axis=0), 0.0)
        means = np.bincount(np.tile(parent, len(self._new_tiles)), values * weights, boards.shape[2])
        return means.astype(np.float64, copy=False)


def slide_all(boards: Boards) -> Boards:
    """Slide boards up, right, down and left: (rows, columns, boards) -> (rows, columns, 4, boards)."""
    rows, columns, count = boards.shape
    moved = np.empty((rows, columns, 4, count), dtype=np.uint8)
    for lines, result, ahead, back in (
        (boards, moved, 0, 2),
        (boards.transpose(1, 0, 2), moved.transpose(1, 0, 2, 3), 3, 1),
    ):
        both = np.stack([lines, lines[::-1]], axis=1)
        _slide(both)
        result[:, :, ahead] = both[:, 0]
        result[:, :, back] = both[::-1, 1]
    return moved


def heuristic_values(boards: Boards) -> Values:
    """Evaluate boards heuristically: (rows, columns, boards) -> (boards,)."""
    block = max(1, _CELLS_PER_BLOCK // boards[..., 0].size)
    starts = range(0, boards.shape[2], block)
    return np.concatenate(
        [_evaluate_block(np.ascontiguousarray(boards[:, :, start : start + block])) for start in starts]
    )


def _evaluate_block(boards: Boards) -> Values:
    rows, columns, count = boards.shape
    exponents = boards.astype(np.float32)
    squares = exponents * exponents
    powers = squares * squares
    squares *= exponents  # in place, to exponents ** 3.5
    squares *= np.sqrt(exponents)
    tiles = np.rint(TILE_WEIGHT * squares).reshape(-1, count).sum(axis=0)
    empty = (boards == 0).reshape(-1, count).sum(axis=0, dtype=np.uint8)
    violation = np.zeros(count, dtype=np.float32)
    pairs = np.zeros(count, dtype=np.uint8)
    for lines, line_powers in ((boards, powers), (boards.transpose(1, 0, 2), powers.transpose(1, 0, 2))):
        up = np.zeros(line_powers.shape[1:], dtype=np.float32)
        for i in range(len(lines) - 1):
            up += np.maximum(line_powers[i + 1] - line_powers[i], 0)
            pairs += ((lines[i] == lines[i + 1]) & (lines[i] != 0)).sum(axis=0, dtype=np.uint8)
        down = up + line_powers[0] - line_powers[-1]
        violation += np.minimum(up, down).sum(axis=0)
    good = 2 * (EMPTY_WEIGHT * empty.astype(np.float64) + MERGE_WEIGHT * pairs.astype(np.float64))
    bad = 2 * tiles.astype(np.float64) + MONOTONICITY_WEIGHT * violation.astype(np.float64)
    values: Values = LINE_VALUE * (rows + columns) + good - bad
    return values


def _slide(lines: Boards) -> None:
    """Slide in place towards index 0 of the first axis."""
    _close_gaps(lines)
    for i in range(len(lines) - 1):
        merged = (lines[i] == lines[i + 1]) & (lines[i] != 0)
        lines[i] += merged
        lines[i + 1] *= ~merged
    _close_gaps(lines)


def _close_gaps(lines: Boards) -> None:
    """Move empty cells to the end in place, by a bubble sort that keeps the order of tiles."""
    for end in range(len(lines) - 1, 0, -1):
        for i in range(end):
            moved = lines[i + 1] * (lines[i] == 0)
            lines[i] += moved
            lines[i + 1] -= moved
