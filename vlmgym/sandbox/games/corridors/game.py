"""Corridors: walk through a maze, seen through the player's eyes, to a red door."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
from pydantic import PositiveInt

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.cells import Cell
from vlmgym.sandbox.answers.choice import COMPASS, Choice, neighbour
from vlmgym.sandbox.core.config import DegradedConfig, config_field
from vlmgym.sandbox.core.game import Game, ImageArray, Infos, Metrics, Step, pick
from vlmgym.sandbox.core.search import distances
from vlmgym.sandbox.drawing.degrade import degrade
from vlmgym.sandbox.games.corridors.view import FAR, MATERIALS, View, walls_of
from vlmgym.sandbox.games.maze import Openings, carve

FORWARD, LEFT, RIGHT = range(3)
DOOR = "door"
SIGHT = 4
"""Number of cells ahead, with the player's own, that a description covers."""
HISTORY = 16
"""Number of past turns that prompts include by default."""

PROMPT_V1 = """\
You are in a maze of {rows} x {columns} square cells, and the image shows what you see. Each turn, you go forward to \
the next cell, or turn left or right on the spot by 90 degrees; to go forward into a wall is illegal. Walls of the \
same material are in the same area. Reach the cell with the red door on its far wall.{pose}
Actions: {actions}.
{form}"""

_POSE = " You are in row {row}, column {column}, facing {heading}; the door is in row {to_row}, column {to_column} \
(rows are numbered from 0 in the north, columns from 0 in the west)."

_PERCEPTION = f"""\
what is left and right of you, and of each cell straight ahead up to the first wall, nearest first, at most {SIGHT} \
cells, one line per cell: open or the material of the wall ({", ".join(MATERIALS)}), comma-separated; in the last \
line, the material of the wall ahead, or door, or open if no wall is that near"""


class CorridorsConfig(DegradedConfig):
    """Configuration of corridors."""

    rows: int = config_field("reasoning", [3, 4, 5, 6, 7], "Rows of cells.", ge=2, le=10)
    columns: int = config_field("reasoning", [3, 4, 5, 6, 7], "Columns of cells.", ge=2, le=10)
    pose: bool = config_field(
        "reasoning", [True, True, False, False, False], "State where the player and the door are in the prompt."
    )
    materials: int = config_field(
        "reasoning", [6, 5, 4, 3, 2], "Number of wall materials, each in its own area.", ge=1, le=len(MATERIALS)
    )
    similarity: float = config_field(
        "perception", [0.0, 0.1, 0.2, 0.5, 0.75], "Similarity of the walls' colours.", ge=0.0, le=0.9
    )

    @property
    def is_degraded(self) -> bool:
        """True if images differ from the view."""
        return (self.blur, self.noise, self.contrast, self.clutter, self.scale, self.crop) != (0, 0, 1, 0, 1, 0)


@dataclass(frozen=True, slots=True)
class CorridorsState:
    """The maze and the player in it.

    Attributes:
        openings: Open sides of each cell, rows x columns, as in the maze.
        areas: Index of each cell's wall material in `MATERIALS`, rows x columns.
        exit: Cell with the door, a dead end.
        player: Cell of the player.
        heading: Index of the direction that the player faces in `COMPASS`.
        par: Number of actions needed at first.
    """

    openings: Openings
    areas: tuple[tuple[int, ...], ...]
    exit: Cell
    player: Cell
    heading: int
    par: PositiveInt


class Steering(Choice):
    """Go forward, or turn left or right, also by the arrow keys or by clicks on a third of the image."""

    def __init__(self) -> None:
        others = {"turn left": "left", "turn right": "right", "ahead": "forward"}
        super().__init__(("forward", "left", "right"), ("go", "move", "turn"), others)

    def key(self, key: str) -> int | None:
        return {"up": FORWARD, "left": LEFT, "right": RIGHT}.get(key)

    def pointed(self, x: float, y: float) -> int:
        return LEFT if x < 1 / 3 else RIGHT if x > 2 / 3 else FORWARD


class Corridors(Game[CorridorsState, int]):
    """Walk through a maze, seen through your own eyes, to a red door.

    Description:
        Exactly one path connects any two cells of the maze. The player starts in the dead end farthest from the door,
        facing its way out. Cells of an area have walls of the same material, which serve as landmarks. Images show
        only what is in sight, so prompts repeat the last 16 turns.

    Observation:
        The view of the player as an RGB image, with a field of view of 90 degrees.

    Action:
        `Discrete(3)`: 0 forward, 1 turn left, 2 turn right. To go forward into a wall is illegal.

    Reward:
        The score is 1 - (actions needed now) / (actions needed at first), but at least 0: 1 at the door. The reward of
        a turn is the change in score, 0 for an illegal or unparsable answer.

    Episode end:
        The cell with the door is reached. Metrics: solved, actions needed.

    Oracle:
        Knows the whole maze, but its explanations mention only what the image shows.
    """

    name = "corridors"
    statements = re.compile(
        r"The way is open (?:only behind me|(?:ahead|left|right)(?: and (?:left|right)){0,2})\."
        r"|I (?:go forward|turn left|turn right)\."
    )
    skills = ("spatial", "memory")
    reward_is_hint = True
    optimal_oracle = True
    partially_observable = True
    history = HISTORY
    answer = Steering()
    Config = CorridorsConfig
    State = CorridorsState
    prompt_template = PROMPT_V1
    perception_form = _PERCEPTION

    def start(self, rng: np.random.Generator) -> CorridorsState:
        c = self.config
        openings = carve(c.rows, c.columns, rng)
        ends = [cell for cell in self._cells if _sides(openings, cell).bit_count() == 1]
        goal = pick(rng, ends)
        needed = actions_needed(openings, goal)
        poses = [(end, _sides(openings, end).bit_length() - 1) for end in ends if end != goal]  # facing the way out
        player, heading = max(poses, key=needed.__getitem__)
        materials = rng.permutation(len(MATERIALS))[: c.materials].tolist()
        seeds = [self._cells[index] for index in rng.permutation(c.rows * c.columns)[: c.materials].tolist()]
        areas = tuple(
            tuple(materials[_nearest((row, column), seeds)] for column in range(c.columns)) for row in range(c.rows)
        )
        return CorridorsState(openings, areas, goal, player, heading, needed[player, heading])

    def check_state(self, state: CorridorsState) -> None:
        super().check_state(state)
        if state.player not in self._cells:
            raise StateError(f"the player is outside the maze, at {state.player}")

    def legal_actions(self, state: CorridorsState) -> tuple[int, ...]:
        if state.player == state.exit:
            return ()
        return (FORWARD, LEFT, RIGHT) if self._is_open(state) else (LEFT, RIGHT)

    def step(self, state: CorridorsState, action: int, rng: np.random.Generator) -> Step[CorridorsState]:
        self.answer.check(action)
        if action == FORWARD and not self._is_open(state):
            raise IllegalAction("there is a wall ahead")
        player, heading = moved(state.player, state.heading, action)
        after = replace(state, player=player, heading=heading)
        return Step(after, self._score(after) - self._score(state))

    def ended(self, state: CorridorsState) -> str | None:
        return "the door is reached" if state.player == state.exit else None

    def best_action(self, state: CorridorsState) -> int | None:
        """First action of a shortest way to the door."""
        needed = actions_needed(state.openings, state.exit)
        legal = self.legal_actions(state)
        return min(legal, key=lambda action: needed[moved(state.player, state.heading, action)], default=None)

    def metrics(self, state: CorridorsState, infos: Infos) -> Metrics:
        needed = self._needed(state)
        return {"solved": float(needed == 0), "actions needed": float(needed)}

    def prompt(self, state: CorridorsState) -> str:
        (row, column), (to_row, to_column) = state.player, state.exit
        heading = COMPASS[state.heading]
        pose = _POSE.format(row=row, column=column, heading=heading, to_row=to_row, to_column=to_column)
        return self.fill_prompt(pose=pose if self.config.pose else "")

    def describe(self, state: CorridorsState) -> str:
        """Walls to the left and right of the cells ahead, and the wall at the end."""
        return "\n".join(", ".join(line) for line in self._seen(state))

    def _seen(self, state: CorridorsState) -> list[list[str]]:
        lines, cell, heading = [], state.player, state.heading
        for _ in range(SIGHT):
            lines.append([_wall(state, cell, (heading + turn) % 4) for turn in (3, 1)])
            if (ahead := _wall(state, cell, heading)) != "open":
                return [*lines, [ahead]]
            cell = neighbour(cell, heading)
        return [*lines, ["open"]]

    def explain(self, state: CorridorsState, action: int) -> str:
        """State which ways are open in the image."""
        seen = self._seen(state)
        ways = [name for name, side in zip(("left", "right"), seen[0]) if side == "open"]
        if self._is_open(state):
            ways.insert(0, "ahead")
        move = "go forward" if action == FORWARD else f"turn {self.answer.format(action)}"
        return f"The way is open {' and '.join(ways) or 'only behind me'}. I {move}."

    def _is_open(self, state: CorridorsState) -> bool:
        return bool(_sides(state.openings, state.player) >> state.heading & 1)

    def _needed(self, state: CorridorsState) -> int:
        return actions_needed(state.openings, state.exit)[state.player, state.heading]

    @property
    def _cells(self) -> list[Cell]:
        return list(product(range(self.config.rows), range(self.config.columns)))

    def _score(self, state: CorridorsState) -> float:
        return max(0.0, 1 - self._needed(state) / state.par)

    # Images ---------------------------------------------------------------------------------------------------------

    def draw(self, state: CorridorsState) -> ImageArray:
        image: ImageArray = np.empty(self.image_shapes[0], np.uint8)
        self.draw_into(state, [image])
        return image

    def draw_into(self, state: CorridorsState, out: Sequence[ImageArray], shown: CorridorsState | None = None) -> None:
        if state == shown:
            return
        self._view.paint(walls_of(state.openings, state.areas, state.exit), state.player, state.heading, out[0])
        if self.config.is_degraded:
            seed = zlib.crc32(repr((state.areas, state.player, state.heading)).encode())
            out[0][:] = degrade(out[0], self.config, seed)

    @cached_property
    def _view(self) -> View:
        return View(self.config.size, self.config.similarity)


def _sides(openings: Openings, cell: Cell) -> int:
    return openings[cell[0]][cell[1]]


def _wall(state: CorridorsState, cell: Cell, direction: int) -> str:
    """Return the material of a wall, `door`, or `open`."""
    kind = int(walls_of(state.openings, state.areas, state.exit)[cell[0] + FAR, cell[1] + FAR, direction])
    return ("open", *MATERIALS, DOOR)[kind]


def _nearest(cell: Cell, seeds: Sequence[Cell]) -> int:
    return min(range(len(seeds)), key=lambda i: (abs(cell[0] - seeds[i][0]) + abs(cell[1] - seeds[i][1]), i))


def moved(player: Cell, heading: int, action: int) -> tuple[Cell, int]:
    """Return the cell and the heading after an action, as if there were no walls."""
    if action == FORWARD:
        return neighbour(player, heading), heading
    return player, (heading + (3 if action == LEFT else 1)) % 4


@lru_cache(maxsize=1024)
def actions_needed(openings: Openings, goal: Cell) -> Mapping[tuple[Cell, int], int]:
    """Return the fewest actions to reach the goal, by cell and heading."""

    def before(pose: tuple[Cell, int]) -> Iterator[tuple[Cell, int]]:
        cell, heading = pose
        if cell != goal:
            yield from ((cell, (heading + turn) % 4) for turn in (1, 3))
        behind = (heading + 2) % 4
        if _sides(openings, cell) >> behind & 1:
            yield neighbour(cell, behind), heading

    return distances(((goal, heading) for heading in range(4)), before)
