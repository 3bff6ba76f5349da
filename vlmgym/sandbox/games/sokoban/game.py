"""Sokoban: push all boxes onto targets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, Cell, find_cells, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import Step
from vlmgym.sandbox.core.named_actions import DIRECTIONS, NamedActions, neighbour
from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.games.search import Planner
from vlmgym.sandbox.games.sokoban.drawing import paint_sokoban_cell
from vlmgym.sandbox.games.sokoban.rooms import Room, make_room
from vlmgym.sandbox.games.sokoban.solver import solve

Board = tuple[str, ...]

WALL, FLOOR, TARGET, BOX, STORED, PLAYER, ON_TARGET = "# .$*@+"
WORDS: Mapping[Hashable, str] = {
    WALL: "wall",
    FLOOR: "floor",
    TARGET: "target",
    BOX: "box",
    STORED: "box on target",
    PLAYER: "player",
    ON_TARGET: "player on target",
}
LEFT_BEHIND = {PLAYER: FLOOR, ON_TARGET: TARGET, BOX: FLOOR, STORED: TARGET}
WITH_PLAYER = {FLOOR: PLAYER, TARGET: ON_TARGET}
WITH_BOX = {FLOOR: BOX, TARGET: STORED}

PROMPT_V1 = """\
The image shows a Sokoban room with {rows} rows and {columns} columns. Rows are numbered from {origin} at the top and \
columns from {origin} at the left. The player (blue) moves one cell per turn. Moving into a box pushes it one cell \
further, if the cell behind it is neither wall nor box. Boxes cannot be pulled. A move that changes nothing is \
illegal. Push all boxes (brown, green on a target) onto targets (red rings).
Actions: 0 or up, 1 or right, 2 or down, 3 or left.
{form}"""

_PERCEPTION = f"the room, one line per row, cells separated by commas, each one of: {', '.join(WORDS.values())}"


class SokobanConfig(BoardConfig):
    """Configuration of Sokoban."""

    rows: int = config_field("reasoning", [6, 6, 8, 8, 9], "Rows of the room, including its outer walls.", ge=5, le=12)
    columns: int = config_field(
        "reasoning", [6, 6, 8, 8, 9], "Columns of the room, including its outer walls.", ge=5, le=12
    )
    boxes: int = config_field("reasoning", [1, 2, 2, 3, 4], "Number of boxes.", ge=1, le=4)

    def model_post_init(self, context: object) -> None:
        within = (self.rows - 2) * (self.columns - 2)
        if within < (least := 8 * self.boxes - 4):
            raise ValueError(
                f"{self.boxes} boxes need at least {least} cells within the outer walls, but {self.rows} x "
                f"{self.columns} cells have {within}"
            )


@dataclass(frozen=True, slots=True)
class SokobanState:
    """Rows of a room in standard Sokoban notation.

    Wall `#`, floor a space, target `.`, box `$`, box on a target `*`, player `@`, player on a target `+`.
    """

    board: Board
    variation_seed: int = 0


class Sokoban(NamedActions, BoardGame[SokobanState, int]):
    """Push all boxes onto targets.

    Description:
        The player moves one cell per turn. Moving into a box pushes it one cell further, if the cell behind the box is
        free. Boxes cannot be pulled, so a wrong push can make the room unsolvable, which does not end the episode.
        Rooms are made by pulling boxes from their targets at random, so they can always be solved.

    Observation:
        The room as an RGB image.

    Action:
        `Discrete(4)`: 0 up, 1 right, 2 down, 3 left. A move that changes nothing is illegal.

    Reward:
        1 / `boxes` for a box pushed onto a target and -1 / `boxes` for a box pushed off a target, so the score is the
        fraction of boxes on targets; 0 for an illegal or unparsable answer.

    Episode end:
        All boxes are on targets. Metrics: solved, boxes on targets, pushes.

    Oracle:
        Plays a shortest solution. It gives up if a push has made the room unsolvable, or if the search exceeds 500,000
        states: never at levels 1 to 5, but in most rooms of 12 x 12 cells with 4 boxes.
    """

    name = "sokoban"
    skills = ("planning", "search")
    joined = True
    verbs = ("move", "go", "push", "walk")
    Config = SokobanConfig
    State = SokobanState
    prompt_template = PROMPT_V1

    def start(self, rng: np.random.Generator) -> SokobanState:
        c = self.config
        room = make_room(c.rows, c.columns, c.boxes, rng)
        symbols = "".join(self._symbol(room, cell) for cell in range(c.rows * c.columns))
        return SokobanState(self.in_rows(symbols), int(rng.integers(2**32)))

    def legal_actions(self, state: SokobanState) -> tuple[int, ...]:
        if self.ended(state) is not None:
            return ()
        player = _player(state.board)
        return tuple([action for action in range(4) if _blocked(state.board, player, action) is None])

    def step(self, state: SokobanState, action: int, rng: np.random.Generator) -> Step[SokobanState]:
        self.check_named(action)
        self.check_running(state)
        player = _player(state.board)
        if (reason := _blocked(state.board, player, action)) is not None:
            raise IllegalAction(f"the player cannot move {DIRECTIONS[action]}: {reason}")
        one = neighbour(player, action)
        two = neighbour(one, action)
        board, to = state.board, state.board[one[0]][one[1]]
        pushed = to in (BOX, STORED)
        gained = 0
        if pushed:
            beyond = board[two[0]][two[1]]
            board = with_cell(board, two, WITH_BOX[beyond])
            gained = (beyond == TARGET) - (to == STORED)
            to = LEFT_BEHIND[to]
        board = with_cell(with_cell(board, one, WITH_PLAYER[to]), player, LEFT_BEHIND[board[player[0]][player[1]]])
        after = SokobanState(board, state.variation_seed)
        return Step(after, gained / self.config.boxes, self.ended(after) is not None, {"pushed": pushed})

    def ended(self, state: SokobanState) -> str | None:
        return None if any(BOX in line for line in state.board) else "all boxes are on targets"

    def best_action(self, state: SokobanState) -> int | None:
        """First move of a shortest solution; None if solved, unsolvable, or the search exceeds 500,000 states."""
        return self._planner.move(state.board)

    def metrics(self, state: SokobanState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        return {
            "solved": float(self.ended(state) is not None),
            "boxes on targets": float(sum(line.count(STORED) for line in state.board)),
            "pushes": float(sum(info.get("pushed", False) for info in infos)),
        }

    def paint_cell(self, canvas: Canvas, cell: Hashable, angle: float) -> None:
        paint_sokoban_cell(canvas, WORDS[cell], angle, self.tint)

    def cell_words(self, cell: Hashable) -> str:
        return WORDS[cell]

    def prompt(self, state: SokobanState) -> str:
        return self.fill_prompt(_PERCEPTION, "up, right, down or left")

    def explain(self, state: SokobanState, action: int) -> str:
        """State where the player, boxes and targets are, and what the move does."""
        player = _player(state.board)
        kinds = {"boxes": BOX + STORED, "targets": TARGET + STORED + ON_TARGET}
        found = "; ".join(f"{name} at {self._places(state.board, kinds[name])}" for name in kinds)
        where = f"The player is at {self.where(player)}; {found}."
        if (reason := _blocked(state.board, player, action)) is not None:
            return f"{where} Moving {DIRECTIONS[action]} is illegal: {reason}."
        to = neighbour(player, action)
        pushes = state.board[to[0]][to[1]] in (BOX, STORED)
        does = f"pushes the box to {self.where(neighbour(to, action))}" if pushes else "pushes no box"
        return f"{where} I move {DIRECTIONS[action]} to {self.where(to)}, which {does}."

    def check_state(self, state: SokobanState) -> None:
        self.check_board_size(state.board)
        text = "".join(state.board)
        border = state.board[0] + state.board[-1] + "".join(line[0] + line[-1] for line in state.board)
        if (
            set(text) - set(WORDS)
            or set(border) != {WALL}
            or text.count(PLAYER) + text.count(ON_TARGET) != 1
            or text.count(BOX) + text.count(STORED) != self.config.boxes
            or text.count(TARGET) + text.count(STORED) + text.count(ON_TARGET) != self.config.boxes
        ):
            raise StateError(f"not a walled room with one player and {self.config.boxes} boxes")

    @cached_property
    def _planner(self) -> Planner[Board, int]:
        return Planner(self._plan)

    def _plan(self, board: Board) -> list[tuple[Board, int]]:
        """Solve a room; return each board along the solution with the action to take there, or an empty list."""
        text = "".join(board)
        floor, targets, boxes, player = (
            sum(1 << cell for cell, symbol in enumerate(text) if symbol in symbols)
            for symbols in (" .$*@+", ".*+", "$*", "@+")
        )
        found = []
        state = SokobanState(board)
        for _, action in solve(Room(floor, targets, boxes, player.bit_length() - 1), self.config.columns) or ():
            found.append((state.board, action))
            state = self.step(state, action, _NO_RANDOMNESS).state
        return found

    def _symbol(self, room: Room, cell: int) -> str:
        if not room.floor >> cell & 1:
            return WALL
        ground = TARGET if room.targets >> cell & 1 else FLOOR
        if cell == room.player:
            return WITH_PLAYER[ground]
        return WITH_BOX[ground] if room.boxes >> cell & 1 else ground

    def _places(self, board: Board, symbols: str) -> str:
        return " ".join(map(self.where, find_cells(board, symbols)))


_NO_RANDOMNESS = np.random.default_rng(0)
"""Passed to `step`, which does not use it."""


def _player(board: Board) -> Cell:
    text = "".join(board)
    row, column = divmod(max(text.find(PLAYER), text.find(ON_TARGET)), len(board[0]))
    return row, column


def _blocked(board: Board, player: Cell, action: int) -> str | None:
    """Return why an action cannot move the player, or None if it can."""
    row, column = neighbour(player, action)
    to = board[row][column]
    if to == WALL:
        return "there is a wall"
    if to not in (BOX, STORED):
        return None
    row, column = neighbour((row, column), action)
    beyond = board[row][column]
    return None if beyond in (FLOOR, TARGET) else f"behind the box there is {'a wall' if beyond == WALL else 'a box'}"
