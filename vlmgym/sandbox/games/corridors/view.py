"""View of a maze through the player's eyes, by ray casting.

The camera is near the back of the player's cell, so that the walls beside the player are in view. Seen from there, the
maze is a fixed set of edges between cells, of which each ray (column of the image) crosses a fixed sequence. The first
wall of the sequence is what the column shows. Images of an edge with a wall, one per material, are drawn once, so an
image of the maze is put together from slices of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.answers.cells import Cell
from vlmgym.sandbox.answers.choice import STEPS
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.drawing.canvas import BLACK, MIDDLE, Colour, blend
from vlmgym.sandbox.games.maze import Openings

MATERIALS = ("brick", "stone", "wood", "hedge", "tiles", "plaster")
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
