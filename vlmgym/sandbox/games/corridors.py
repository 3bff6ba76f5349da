"""Corridors: walk through a maze, seen through the player's eyes, to a red door."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.cells import Cell
from vlmgym.sandbox.answers.choice import COMPASS, STEPS, Choice, neighbour
from vlmgym.sandbox.core.config import DegradedConfig, config_field
from vlmgym.sandbox.core.game import Game, ImageArray, Infos, Metrics, Step, pick
from vlmgym.sandbox.core.search import distances
from vlmgym.sandbox.drawing.canvas import BLACK, MIDDLE, Colour, blend
from vlmgym.sandbox.drawing.degrade import degrade
from vlmgym.sandbox.games.maze import Openings, carve

FORWARD, LEFT, RIGHT = range(3)
MATERIALS = ("brick", "stone", "wood", "hedge", "tiles", "plaster")
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
        effects = (self.blur, self.noise, self.contrast, self.clutter, self.scale, self.shade, self.crop)
        return effects != (0, 0, 1, 0, 1, 0, 0)


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


# View -----------------------------------------------------------------------------------------------------------------
#
# View of the maze through the player's eyes, by ray casting.
#
# The camera is near the back of the player's cell, so that the walls beside the player are in view. Seen from there,
# the maze is a fixed set of edges between cells, of which each ray (column of the image) crosses a fixed sequence. The
# first wall of the sequence is what the column shows. Images of an edge with a wall, one per material, are drawn once,
# so an image of the maze is put together from slices of them.

BACK = 0.45
"""Distance of the camera from the middle of the cell, in cells."""
FAR = 7
"""Distance in cells beyond which it is dark."""
TEXELS = 256
"""Side of a wall's texture in pixels."""
FLOOR: Colour = (112, 104, 98)
CEILING: Colour = (58, 62, 74)
NIGHT: Colour = (16, 17, 22)
LAMP: Colour = (232, 226, 196)

Walls = NDArray[np.uint8]
"""Walls of a maze, uint8 (rows + 2 x FAR, columns + 2 x FAR, 4 directions): 0 is open, else a material from 1."""


@lru_cache(maxsize=1024)
def walls_of(openings: Openings, areas: tuple[tuple[int, ...], ...], goal: Cell) -> Walls:
    """Return the walls of a maze with areas of materials; the wall behind the way into the goal is the door."""
    rows, columns = len(openings), len(openings[0])
    sides = np.array(openings)[..., None] >> np.arange(4) & 1
    walls = np.zeros((rows + 2 * FAR, columns + 2 * FAR, 4), np.uint8)
    walls[FAR:-FAR, FAR:-FAR] = np.where(sides, 0, np.array(areas)[..., None] + 1)
    way_in = openings[goal[0]][goal[1]].bit_length() - 1
    walls[goal[0] + FAR, goal[1] + FAR, (way_in + 2) % 4] = len(MATERIALS) + 1
    walls.flags.writeable = False
    return walls


class View:
    """Draws what a player sees, in images of `size` x `size` pixels."""

    def __init__(self, size: int, similarity: float) -> None:
        self.size = size
        self._edges: list[tuple[int, int, int]] = []
        """Edges: cells ahead, cells to the right, and turn of the side (0 ahead, 1 right, 3 left)."""
        self._slopes = (np.arange(size) + 0.5) / size * 2 - 1
        crossed = self._cross()
        self._starts = np.flatnonzero(np.append(True, (crossed[1:] != crossed[:-1]).any(axis=1)))
        self._rays = crossed[self._starts]
        """Different rays: the edges that each crosses; a ray stands for the columns from its start to the next."""
        self._depths = [self._depth(*edge) for edge in self._edges]
        self._textures = [_mips(blended(texture, similarity)) for texture in textures()]
        self._background = self._draw_background()
        self._sprites: dict[tuple[int, int], tuple[int, ImageArray]] = {}
        self._offsets: dict[tuple[int, int], NDArray[np.int64]] = {}

    def paint(self, walls: Walls, player: Cell, heading: int, out: ImageArray) -> None:
        """Draw the view of a player into an image, uint8 (size, size, 3)."""
        columns = walls.shape[1]
        if (columns, heading) not in self._offsets:
            self._offsets[columns, heading] = self._offsets_at(columns, heading)
        here = ((player[0] + FAR) * columns + player[1] + FAR) * 4
        kinds = np.append(walls.ravel()[self._offsets[columns, heading] + here], 1)  # the last stands for the night
        first = (kinds[self._rays] > 0).argmax(axis=1)
        edges = self._rays[np.arange(len(self._rays)), first]
        changes = [0, *(np.flatnonzero(edges[1:] != edges[:-1]) + 1).tolist()]
        for ray, start, end in zip(
            changes, self._starts[changes].tolist(), [*self._starts[changes[1:]].tolist(), self.size]
        ):
            edge = int(edges[ray])
            left, sprite = self._sprite(edge, int(kinds[edge]))
            out[:, start:end] = sprite[:, start - left : end - left]

    def _cross(self) -> NDArray[np.int64]:
        """List the edges that each ray crosses in turn, int64 (size, most); the night follows the last."""
        numbers: dict[tuple[int, int, int], int] = {}
        rays = []
        for slope in self._slopes.tolist():
            fronts = [(ahead + 0.5 + BACK, ahead, 0) for ahead in range(FAR)]
            beyond = FAR - 0.5 + BACK
            sides = [((m + 0.5) / abs(slope), m, 1) for m in range(FAR) if (m + 0.5) / abs(slope) < beyond]
            ray = []
            for depth, number, is_side in sorted([*fronts, *sides]):
                if is_side:
                    edge = int(depth - BACK + 0.5), number if slope > 0 else -number, 1 if slope > 0 else 3
                else:
                    edge = number, round(slope * depth), 0
                ray.append(numbers.setdefault(edge, len(numbers)))
            rays.append(ray)
        self._edges = [*numbers]
        most = max(map(len, rays)) + 1
        return np.array([ray + [len(numbers)] * (most - len(ray)) for ray in rays])

    def _depth(self, ahead: int, right: int, turn: int) -> NDArray[np.float64]:
        """Distance of an edge's plane along the view, by column, float64 (size,)."""
        if not turn:
            return np.full(self.size, ahead + 0.5 + BACK)
        return (abs(right) + 0.5) / np.abs(self._slopes)

    def _offsets_at(self, columns: int, heading: int) -> NDArray[np.int64]:
        """Index of each edge in the flat walls, relative to the player's cell, int64 (edges,)."""
        ahead, right, turn = np.array(self._edges).T
        (down, across), (down_right, across_right) = STEPS[heading], STEPS[(heading + 1) % 4]
        rows, cells = ahead * down + right * down_right, ahead * across + right * across_right
        offsets: NDArray[np.int64] = (rows * columns + cells) * 4 + (heading + turn) % 4
        return offsets

    def _sprite(self, edge: int, kind: int) -> tuple[int, ImageArray]:
        """Return the first column and the image of an edge with a wall of a kind, with floor and ceiling."""
        if (sprite := self._sprites.get((edge, kind))) is None:
            shown = np.flatnonzero((self._rays == edge).any(axis=1))
            ends = np.append(self._starts, self.size)
            left, right = int(ends[shown[0]]), int(ends[shown[-1] + 1])
            sprite = self._sprites[edge, kind] = (left, self._draw_wall(edge, kind, slice(left, right)))
        return sprite

    def _draw_wall(self, edge: int, kind: int, columns: slice) -> ImageArray:
        floor = self._background[:, columns]
        if edge == len(self._edges):
            return floor
        ahead, right, turn = self._edges[edge]
        depth = self._depths[edge][columns]
        along = depth - BACK - ahead if turn else self._slopes[columns] * depth - right
        across = np.clip((along if turn != 1 else -along) + 0.5, 0, 1 - 1e-9)
        height = self.size / (2 * depth)  # of the wall in pixels, by column
        top = self.size / 2 - height / 2
        mips = self._textures[kind - 1]
        texture = next((mip for mip in reversed(mips) if len(mip) >= height.mean()), mips[0])
        rows = np.arange(self.size)[:, None]
        down = np.clip((rows + 0.5 - top) / height, 0, 1 - 1e-9)
        side = len(texture)
        colours = texture[(down * side).astype(np.intp), (across * side).astype(np.intp)]
        lit = np.clip(light(depth) * (0.82 if turn else 1.0), 0, 1)[:, None]
        wall = colours * lit + np.array(NIGHT) * (1 - lit)
        inside = np.clip(np.minimum(rows + 1, self.size / 2 + height / 2) - np.maximum(rows, top), 0, 1)[..., None]
        painted: ImageArray = (wall * inside + floor * (1 - inside) + 0.5).astype(np.uint8)
        return painted

    def _draw_background(self) -> ImageArray:
        """Draw floor and ceiling of an endless hall: slabs with joints, and a lamp above each cell."""
        rows = np.abs((np.arange(self.size) + 0.5) / self.size * 2 - 1)[:, None]
        depth = 0.5 / rows
        ahead, right = depth - BACK, self._slopes * depth
        within = np.maximum(np.abs(ahead - np.rint(ahead)), np.abs(right - np.rint(right)))  # 0.5 at the joints
        joint = np.clip(1 - (0.5 - within) * self.size / 4 / depth / 2, 0, 1) * 0.45
        lamp = np.clip((0.12 - within) * self.size / 2 / depth + 0.5, 0, 1)
        above = (np.arange(self.size) < self.size / 2)[:, None]
        lit = np.clip(light(depth), 0, 1)
        image = np.empty((self.size, self.size, 3))
        for channel in range(3):
            ceiling = CEILING[channel] * (1 - lamp) + LAMP[channel] * lamp
            ground = FLOOR[channel] * (1 - joint)
            image[..., channel] = np.where(above, ceiling, ground) * lit + NIGHT[channel] * (1 - lit)
        painted: ImageArray = (image + 0.5).astype(np.uint8)
        return painted


def light(depth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Brightness at a distance, 1 at the camera and 0 where it is dark."""
    return np.clip(1.08 - depth / (FAR - 0.5 + BACK), 0, 1)


# Textures -------------------------------------------------------------------------------------------------------------
#
# Square uint8 textures of TEXELS pixels, made of noise and joints.


def blended(texture: ImageArray, similarity: float) -> ImageArray:
    """Mix a texture with grey."""
    return (texture * (1 - similarity) + np.array(MIDDLE) * similarity + 0.5).astype(np.uint8)


def _mips(texture: ImageArray) -> list[ImageArray]:
    """Return a texture at its size, and at half of it, and so on down to 8 pixels."""
    mips = [texture]
    while len(mips[-1]) > 8:
        side = len(mips[-1]) // 2
        mips.append((mips[-1].reshape(side, 2, side, 2, 3).sum(axis=(1, 3), dtype=np.uint16) // 4).astype(np.uint8))
    return mips


@lru_cache(maxsize=1)
def textures() -> tuple[ImageArray, ...]:
    """Textures of `MATERIALS`, and of the door."""
    rng = np.random.default_rng(0)
    brick = _courses(rng, (168, 74, 52), (214, 202, 188), 8, (4,) * 8, 0.16)
    stone = _courses(rng, (136, 138, 144), (70, 72, 78), 4, (2, 3, 2, 3), 0.12)
    wood = _courses(rng, (126, 82, 44), (62, 38, 20), 1, (6,), 0.2, grain=True)
    hedge = _shade(np.array((52, 120, 44)), 0.3 + 1.25 * _noise(rng, (128, 64, 32)))
    tiles = _courses(rng, (92, 158, 204), (236, 240, 242), 4, (4,) * 4, 0.05, shifted=False)
    plaster = _shade(np.array((222, 178, 92)), 0.8 + 0.32 * _noise(rng, (64, 16, 4)))
    plaster[TEXELS * 13 // 16 :] = _shade(np.array((108, 76, 40)), 0.85 + 0.3 * _noise(rng, (64, 16)))[
        : TEXELS * 3 // 16
    ]
    return brick, stone, wood, hedge, tiles, plaster, _door()


def _noise(rng: np.random.Generator, scales: Sequence[int]) -> NDArray[np.float64]:
    """Return smooth noise that can be tiled, float64 (TEXELS, TEXELS) in 0 to 1.

    It is the mean over numbers of random values along a side, between which it is interpolated.
    """
    layers = []
    for scale in scales:
        at = np.arange(TEXELS) * scale / TEXELS
        first = at.astype(int)
        second, share = (first + 1) % scale, at - first
        values = rng.random((scale, scale))
        rows = values[first] * (1 - share)[:, None] + values[second] * share[:, None]
        layers.append(rows[:, first] * (1 - share) + rows[:, second] * share)
    mean: NDArray[np.float64] = np.mean(layers, axis=0)
    return mean


def _shade(colour: NDArray[Any], factor: NDArray[np.float64]) -> ImageArray:
    return np.clip(colour * factor[..., None], 0, 255).astype(np.uint8)


def _courses(
    rng: np.random.Generator,
    colour: Colour,
    joint: Colour,
    courses: int,
    blocks: Sequence[int],
    spread: float,
    shifted: bool = True,
    grain: bool = False,
) -> ImageArray:
    """Return courses of blocks with joints; odd courses are shifted by half a block, wood has vertical grain."""
    high, width = TEXELS // courses, max(2, TEXELS // 85)
    factor, is_joint = np.empty((TEXELS, TEXELS)), np.zeros((TEXELS, TEXELS), bool)
    fine = _noise(rng, (128, 32)) if not grain else np.tile(np.repeat(rng.random(64), TEXELS // 64), (TEXELS, 1))
    for course in range(courses):
        lines, across = slice(course * high, (course + 1) * high), np.arange(TEXELS)
        wide = TEXELS / blocks[course]
        at = (across + (wide / 2 if shifted and course % 2 else 0)) % TEXELS
        tones = 1 + spread * (rng.random(blocks[course]) * 2 - 1)
        factor[lines] = tones[(at / wide).astype(int)]
        is_joint[lines] = at % wide < width
        if courses > 1:
            is_joint[course * high : course * high + width] = True
    image = _shade(np.array(colour), factor * (0.92 + 0.16 * fine))
    image[is_joint] = joint
    return image


def _door() -> ImageArray:
    """Return a red door with panels and a knob in a pale frame."""
    red, pale = (196, 30, 34), (226, 220, 208)
    image = np.empty((TEXELS, TEXELS, 3), np.uint8)
    image[:] = (96, 92, 92)
    unit = TEXELS // 32

    def box(left: int, top: int, right: int, bottom: int, colour: Colour) -> None:
        image[top * unit : bottom * unit, left * unit : right * unit] = colour

    box(5, 2, 27, 32, pale)
    box(7, 4, 25, 32, red)
    for top, bottom in ((6, 16), (19, 30)):
        for left in (9, 17):
            box(left, top, left + 6, bottom, blend(red, BLACK, 0.35))
            box(left + 1, top + 1, left + 6, bottom, blend(red, BLACK, 0.12))
    box(22, 17, 24, 19, (240, 200, 70))
    return image
