"""Sokoban: push all boxes onto targets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.cells import CELL, Cell
from vlmgym.sandbox.answers.choice import DIRECTIONS, STEPS, WAY, Directions, neighbour
from vlmgym.sandbox.core.board_game import BoardConfig, BoardGame, cells_of, find_cells, with_cell
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.game import NO_CHANCE, Infos, Metrics, Step
from vlmgym.sandbox.core.search import Plan, Planner, distances, shortest_path_to
from vlmgym.sandbox.drawing.canvas import BLACK, Canvas, Colour, blend
from vlmgym.sandbox.drawing.shapes import paint_player, paint_wall, turned

Board = tuple[str, ...]

WALL, FLOOR, TARGET, BOX, STORED, PLAYER, ON_TARGET = "# .$*@+"
WORDS: Mapping[str, str] = {
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
The image shows a Sokoban room with {rows} rows and {columns} columns. {numbering} The player (blue) moves one cell \
per turn. Moving into a box pushes it one cell further, if the cell behind it is neither wall nor box. Boxes cannot be \
pulled. A move that changes nothing is illegal. Push all boxes (brown, green on a target) onto targets (red rings).
Actions: {actions}.
{form}"""


_CELLS = rf"{CELL}(?: {CELL})*"
_STATEMENT = re.compile(
    rf"\b(?:(?P<what>player is|boxes|targets) at {_CELLS}|Pushes that solve the room:"
    rf"|I move (?P<move>{WAY}) to {_CELLS}, which pushes (?:no box|the box to {_CELLS})"
    rf"|(?:box {_CELLS} )?(?P<push>{WAY}) to {_CELLS})"
)
"""Statements of `Sokoban.explain`, and the head of its list of pushes."""


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


class Sokoban(BoardGame[SokobanState, int]):
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
        states: never at levels 1 to 5, but in about 1% of rooms of 12 x 12 cells with 4 boxes.
    """

    name = "sokoban"
    skills = ("planning", "search")
    joined = True
    answer = Directions(("move", "go", "push", "walk"))
    optimal_oracle = True
    attempts = 5000
    Config = SokobanConfig
    State = SokobanState
    prompt_template = PROMPT_V1
    words = WORDS
    perception_form = f"the room, one line per row, cells separated by commas, each one of: {', '.join(WORDS.values())}"

    def deal(self, rng: np.random.Generator) -> SokobanState | None:
        c = self.config
        if (room := make_room(c.rows, c.columns, c.boxes, rng)) is None:
            return None
        symbols = "".join(self._symbol(room, cell) for cell in range(c.cell_count))
        return SokobanState(self.in_rows(symbols))

    def legal_actions(self, state: SokobanState) -> tuple[int, ...]:
        if self.ended(state) is not None:
            return ()
        player = _player(state.board)
        return tuple([action for action in range(4) if _blocked(state.board, player, action) is None])

    def step(self, state: SokobanState, action: int, rng: np.random.Generator) -> Step[SokobanState]:
        self.answer.check(action)
        player = _player(state.board)
        if (reason := _blocked(state.board, player, action)) is not None:
            raise IllegalAction(f"the player cannot move {DIRECTIONS[action]}: {reason}")
        ahead = neighbour(player, action)
        behind = neighbour(ahead, action)
        board, to = state.board, state.board[ahead[0]][ahead[1]]
        pushed = to in (BOX, STORED)
        gained = 0
        if pushed:
            beyond = board[behind[0]][behind[1]]
            board = with_cell(board, behind, WITH_BOX[beyond])
            gained = (beyond == TARGET) - (to == STORED)
            to = LEFT_BEHIND[to]
        board = with_cell(with_cell(board, ahead, WITH_PLAYER[to]), player, LEFT_BEHIND[board[player[0]][player[1]]])
        after = SokobanState(board, state.variation_seed)
        return Step(after, gained / self.config.boxes, {"pushed": pushed})

    def ended(self, state: SokobanState) -> str | None:
        return None if any(BOX in line for line in state.board) else "all boxes are on targets"

    def goal(self, state: SokobanState) -> SokobanState:
        """Return the room with all boxes on targets, without the player, which may be anywhere."""
        solved = str.maketrans(BOX + PLAYER + TARGET + ON_TARGET, 2 * FLOOR + 2 * STORED)
        return replace(state, board=tuple([row.translate(solved) for row in state.board]))

    def best_action(self, state: SokobanState) -> int | None:
        """First move of a shortest solution; None if solved, unsolvable, or the search exceeds 500,000 states."""
        return self._planner.move(_room(state.board))

    def metrics(self, state: SokobanState, infos: Infos) -> Metrics:
        return {
            "solved": float(self.ended(state) is not None),
            "boxes on targets": float(sum(line.count(STORED) for line in state.board)),
            "pushes": float(sum(info.get("pushed", False) for info in infos)),
        }

    def check_state(self, state: SokobanState) -> None:
        super().check_state(state)
        for name, symbols, count in (
            ("player", PLAYER + ON_TARGET, 1),
            ("box", BOX + STORED, self.config.boxes),
            ("target", TARGET + STORED + ON_TARGET, self.config.boxes),
        ):
            if (cells := len(find_cells(state.board, symbols))) != count:
                raise StateError(f"the room has {cells} cells with a {name}, not {count}")
        columns = [*zip(*state.board)]
        if {*state.board[0], *state.board[-1], *columns[0], *columns[-1]} != {WALL}:
            raise StateError("the room has an opening in its outer walls")

    def paint_cell(self, canvas: Canvas, cell: str, angle: float) -> None:
        side = canvas.width
        middle, paper = side / 2, self.tint(PAPER)
        if cell == WALL:
            paint_wall(canvas, self.tint)
        elif cell == ON_TARGET:
            canvas.circle(middle, middle, side * 0.48, self.tint(RING))
            canvas.circle(middle, middle, side * 0.41, paper)
        elif cell in (TARGET, STORED):
            canvas.circle(middle, middle, side * 0.3, self.tint(RING))
            canvas.circle(middle, middle, side * 0.2, paper)
            canvas.circle(middle, middle, side * 0.1, self.tint(RING))
        if cell in WITH_BOX.values():
            _paint_box(canvas, self.tint(STORED_COLOUR if cell == STORED else BOX_COLOUR), angle)
        elif cell in WITH_PLAYER.values():
            paint_player(canvas, self.tint, angle)

    def explain(self, state: SokobanState, action: int) -> str:
        """State where the player, boxes and targets are, the pushes of a shortest solution, and what the move does.

        If the room cannot be solved after the move, no pushes are stated.
        """
        player = _player(state.board)
        boxes, targets = (
            " ".join(map(self.where, find_cells(state.board, symbols)))
            for symbols in (BOX + STORED, TARGET + STORED + ON_TARGET)
        )
        where = f"The player is at {self.where(player)}; boxes at {boxes}; targets at {targets}."
        return f"{where}{self._pushes_in_words(state, action)} {self._move_in_words(state, action)}."

    def _move_in_words(self, state: SokobanState, action: int) -> str:
        to = neighbour(_player(state.board), action)
        pushes = state.board[to[0]][to[1]] in (BOX, STORED)
        does = f"pushes the box to {self.where(neighbour(to, action))}" if pushes else "pushes no box"
        return f"I move {DIRECTIONS[action]} to {self.where(to)}, which {does}"

    def check_reasoning(self, state: SokobanState, text: str) -> list[bool]:
        """Check the cells of player, boxes and targets, each push, whether all pushes solve the room, and the move."""
        room, checks, solving, start = _room(state.board), list[bool](), False, (0, 0)
        for match in (*_STATEMENT.finditer(text), None):
            if solving and (match is None or match["push"] is None):
                checks.append(not room.boxes & ~room.targets)
                solving = False
            if match is None:
                break
            cells = self._cells_in(match[0])
            if match["what"]:
                symbols = {"player is": "@+", "boxes": "$*", "targets": ".*+"}[match["what"]]
                checks.append(cells == find_cells(state.board, symbols))
            elif match["push"]:
                box, to = (cells[0] if len(cells) > 1 else start), cells[-1]
                pushed = self._pushed(room, box, DIRECTIONS.index(match["push"]), to)
                checks.append(pushed is not None)
                room, start = pushed or room, to
            elif match["move"]:
                action = DIRECTIONS.index(match["move"])
                checks.append(action in self.legal_actions(state) and match[0] == self._move_in_words(state, action))
            else:
                solving = True
        return checks

    def _pushed(self, room: Room, box: Cell, action: int, to: Cell) -> Room | None:
        """Return the room after a box has been pushed in a direction to a cell; None if that is not possible."""
        columns, move = self.config.columns, steps(self.config.columns)[action]
        while box != to:
            here, free = self.index_of(box), room.floor & ~room.boxes
            if not self.inside(box) or not room.boxes >> here & 1 or not free >> here + move & 1:
                return None
            if not reachable(room.player, free, columns) >> here - move & 1:
                return None
            room = replace(room, player=here, boxes=room.boxes ^ (1 << here | 1 << here + move))
            box = neighbour(box, action)
        return room

    def _pushes_in_words(self, state: SokobanState, action: int) -> str:
        """List the pushes of a shortest solution that begins with a move; empty if there is none."""
        pushes: list[tuple[Cell, int, Cell]] = []
        following: int | None = action
        while following is not None:
            box = neighbour(_player(state.board), following)
            step = self.step(state, following, NO_CHANCE)
            if step.info["pushed"]:
                start, to = box, neighbour(box, following)
                if pushes and pushes[-1][1:] == (following, box):
                    start = pushes.pop()[0]
                pushes.append((start, following, to))
            state, following = step.state, self.best_action(step.state)
        if self.ended(state) is None:
            return ""
        text, before = "", None
        for start, direction, to in pushes:
            text += "," if start == before else f"; box {self.where(start)}"
            text += f" {DIRECTIONS[direction]} to {self.where(to)}"
            before = to
        return f" Pushes that solve the room: {text[2:]}."

    @cached_property
    def _planner(self) -> Planner[Room, int]:
        return Planner(self._plan)

    def _plan(self, room: Room) -> list[tuple[Room, int]]:
        """Solve a room; return each room along the solution with the action to take there, or an empty list."""
        plan = solve(room, self.config.columns) or ()
        return [(replace(room, player=node & 255, boxes=node >> 8), action) for node, action in plan]

    def _symbol(self, room: Room, cell: int) -> str:
        if not room.floor >> cell & 1:
            return WALL
        is_target, is_box = room.targets >> cell & 1, room.boxes >> cell & 1
        return (FLOOR, TARGET, BOX, STORED, PLAYER, ON_TARGET)[is_target + 2 * is_box + 4 * (cell == room.player)]


def _room(board: Board) -> Room:
    text = "".join(board)
    floor, targets, boxes, player = (
        sum(1 << cell for cell, symbol in enumerate(text) if symbol in symbols)
        for symbols in (" .$*@+", ".*+", "$*", "@+")
    )
    return Room(floor, targets, boxes, player.bit_length() - 1)


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


# Rooms ----------------------------------------------------------------------------------------------------------------
#
# Random Sokoban rooms, made by pulling boxes away from their targets, so every room can be solved.
#
# Cells are numbered row by row, and sets of cells are bit masks.

FLOOR_SHARE = 0.55
"""Fraction of the cells within the outer walls that are floor."""
PULLS = 14
"""Number of attempted pulls, as a multiple of the number of boxes; each pulls a random box by up to `REACH` cells."""
REACH = 4
APART = 1.5
"""Minimum average distance from a room's boxes to their nearest targets, in cells."""


@dataclass(frozen=True, slots=True)
class Room:
    """Floor, targets and boxes as sets of cells, and the player's cell."""

    floor: int
    targets: int
    boxes: int
    player: int


@lru_cache
def steps(columns: int) -> tuple[int, ...]:
    """Return the change in cell number for a step in each direction, in the order of `DIRECTIONS`."""
    return tuple(row * columns + column for row, column in STEPS)


def reachable(player: int, free: int, columns: int) -> int:
    """Return the set of cells that the player can walk to through `free` cells; the border must not be free."""
    reached, before = 1 << player, 0
    while reached != before:
        before = reached
        reached |= (reached << 1 | reached >> 1 | reached << columns | reached >> columns) & free
    return reached


def make_room(rows: int, columns: int, boxes: int, rng: np.random.Generator) -> Room | None:
    """Make a random room with no box on a target; None if it has too little floor, or if boxes cannot be pulled."""
    floor = _floor(rows, columns, rng)
    cells = [cell for cell in cells_of(floor) if any(_free(floor, cell, move) for move in steps(columns))]
    if len(cells) <= boxes:
        return None
    chosen = [cells[i] for i in rng.permutation(len(cells))[: boxes + 1].tolist()]
    return _pulled(floor, sum(1 << cell for cell in chosen[:boxes]), chosen[boxes], columns, boxes, rng)


def _floor(rows: int, columns: int, rng: np.random.Generator) -> int:
    """Carve a connected floor by a random walk that widens its path."""
    goal = max(6, round((rows - 2) * (columns - 2) * FLOOR_SHARE))
    row, column = int(rng.integers(1, rows - 1)), int(rng.integers(1, columns - 1))
    floor = 1 << row * columns + column
    while floor.bit_count() < goal:
        down, right = STEPS[int(rng.integers(4))]
        for _ in range(int(rng.integers(1, 3))):
            row, column = min(max(row + down, 1), rows - 2), min(max(column + right, 1), columns - 2)
            beside = min(column + 1, columns - 2) if down else column
            below = min(row + 1, rows - 2) if right else row
            floor |= 1 << row * columns + column | 1 << below * columns + beside
    return floor


def _pulled(floor: int, targets: int, player: int, columns: int, count: int, rng: np.random.Generator) -> Room | None:
    """Pull boxes at random; return the last room that has no box on a target and satisfies `APART`, or None."""
    moves = steps(columns)
    boxes, room = targets, None
    drawn = rng.integers(0, (count, 4, REACH), (PULLS * count, 3)).tolist()
    for index, direction, reach in drawn:
        cells = cells_of(boxes)
        box, move = cells[index], moves[direction]
        free = floor & ~boxes
        if not _free(free, box, move):
            continue
        if not reachable(player, free, columns) >> box + move & 1:
            continue
        player = box + move
        for _ in range(reach + 1):
            if not free >> player + move & 1:
                break
            boxes ^= 1 << player - move | 1 << player
            player += move
            free = floor & ~boxes
        if not boxes & targets and _distance(boxes, targets, columns) >= APART * count:
            room = Room(floor, targets, boxes, player)
    return room


def _free(floor: int, cell: int, move: int) -> bool:
    """True if a box can be pulled from a cell: the next two cells in the direction of `move` are free."""
    return bool(floor >> cell + move & 1 and floor >> cell + 2 * move & 1)


def _distance(boxes: int, targets: int, columns: int) -> int:
    """Sum of the Manhattan distances from boxes to their nearest targets."""
    goals = [divmod(cell, columns) for cell in cells_of(targets)]
    places = (divmod(cell, columns) for cell in cells_of(boxes))
    return sum(min(abs(row - r) + abs(column - c) for r, c in goals) for row, column in places)


# Drawing --------------------------------------------------------------------------------------------------------------

BOX_COLOUR: Colour = (190, 120, 52)
STORED_COLOUR: Colour = (44, 148, 72)
RING: Colour = (206, 44, 44)
PAPER: Colour = (250, 246, 238)
"""Colour within the rings of targets."""


def _paint_box(canvas: Canvas, colour: Colour, angle: float) -> None:
    middle, dark = canvas.width / 2, blend(colour, BLACK, 0.35)
    half = canvas.width * 0.4

    def block(left: float, top: float, right: float, bottom: float, fill: Colour) -> None:
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        canvas.polygon(turned(corners, middle, middle, half, angle), fill)

    block(-1, -1, 1, 1, dark)
    block(-0.82, -0.82, 0.82, 0.82, colour)
    for left in (-0.82, 0.82):
        wide = -0.2 if left > 0 else 0.2
        plank = [(left, -0.62), (left, -0.82), (left + wide, -0.82), (-left, 0.62), (-left, 0.82), (-left - wide, 0.82)]
        canvas.polygon(turned(plank, middle, middle, half, angle), dark)


# Oracle ---------------------------------------------------------------------------------------------------------------
#
# Solver for Sokoban: breadth-first search over the positions of the player and the boxes, from both ends.
#
# Boxes are not pushed to cells from which they could never reach a target. Solutions have the fewest moves. Rooms at
# level 5 need at most about 60,000 nodes.

Node = int
"""Player's cell in the lowest byte, and above it the boxes' cells as a bit mask; faster than a tuple."""


def solve(room: Room, columns: int) -> Plan[Node, int] | None:
    """Return a shortest solution, or None if none exists or `shortest_path_to` finds none."""
    alive = live_cells(room.floor, room.targets, columns)
    if room.boxes & ~alive:
        return None

    def box(cell: int) -> Node:
        return 1 << cell + 8

    moves = {
        cell: [(action, move) for action, move in enumerate(steps(columns)) if room.floor >> cell + move & 1]
        for cell in cells_of(room.floor)
    }
    pushes = {
        cell: [(action, move, box(cell + move), box(cell + 2 * move) & alive << 8) for action, move in ways]
        for cell, ways in moves.items()
    }
    pulls = {
        cell: [(move, box(cell + move), box(cell - move), box(cell - move) | box(cell)) for _, move in ways]
        for cell, ways in moves.items()
    }

    def successors(node: Node) -> Iterator[tuple[int, Node]]:
        for action, move, to, beyond in pushes[node & 255]:
            if not node & to:
                yield action, node + move
            elif beyond and not node & beyond:
                yield action, (node ^ to ^ beyond) + move

    def predecessors(node: Node) -> Iterator[Node]:
        for move, to, behind, pulled in pulls[node & 255]:
            if not node & to:
                yield node + move
                if node & behind:
                    yield (node ^ pulled) + move

    goals = [room.targets << 8 | cell for cell in cells_of(room.floor & ~room.targets)]
    return shortest_path_to(goals, room.boxes << 8 | room.player, successors, predecessors)


@lru_cache(maxsize=1024)
def live_cells(floor: int, targets: int, columns: int) -> int:
    """Return the set of cells from which a single box can be pushed to a target, found by pulling boxes away."""

    def pulled(cell: int) -> Iterator[int]:
        return (cell + move for move in steps(columns) if _free(floor, cell, move))

    return sum(1 << cell for cell in distances(cells_of(targets), pulled))
