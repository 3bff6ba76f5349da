"""Mental rotation: find the rotated copy of a figure."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.core.config import ShadedConfig, config_field
from vlmgym.sandbox.core.game import NOT_DESCRIBED, ImageArray, pick
from vlmgym.sandbox.core.task import ChoiceState, ChoiceTask, TaskConfig
from vlmgym.sandbox.drawing.canvas import COLOURS, WHITE, Canvas, Colour, blend
from vlmgym.sandbox.drawing.shapes import Face, cube_faces, paint_faces

PAGE: Colour = (250, 248, 243)
FRAME: Colour = (187, 176, 164)
ANGLE = 15
"""Flat figures are rotated by a multiple of this many degrees."""

PROMPT_V1 = """\
The image shows a figure made of {cells} equal {kind} in the top row, and below it the figures 1 to {choices}. Exactly \
one of them is the figure in the top row, only rotated{how}; the others are its mirror image or have another shape. \
Which one?
Answer with its number.
{form}"""


class RotationConfig(ShadedConfig, TaskConfig):
    """Configuration of mental rotation."""

    solid: bool = config_field(
        "reasoning", [False, False, True, True, True], "Figures of cubes in space instead of squares in the plane."
    )
    cells: int = config_field("reasoning", [4, 5, 5, 6, 8], "Number of cubes or squares of a figure.", ge=4, le=10)
    choices: int = config_field("reasoning", [2, 3, 4, 5, 6], "Number of figures to choose from.", ge=2, le=6)


@dataclass(frozen=True, kw_only=True)
class RotationState(ChoiceState):
    """The figure and the choices; solid figures are already rotated, flat figures are drawn at `angles` in degrees."""

    figures: tuple[Figure, ...]
    angles: tuple[int, ...]


class Rotation(ChoiceTask[RotationState]):
    """Find the rotated copy of a figure.

    Description:
        A figure is a random connected set of squares or cubes that differs from its mirror image. One choice is the
        figure in another orientation, one is its mirror image, and the others have one cell in another place or are
        mirror images of such figures. In solid figures, every cube is at least partly visible, and moving any single
        cube would change the image. Solid figures are rotated about any axis, flat figures by multiples of 15 degrees.

    Observation:
        An RGB image with the figure above the numbered choices.

    Action:
        `Discrete(choices, start=1)`: the number of a choice.

    Reward:
        1 if correct; 0 if wrong or unparsable.

    Episode end:
        After one turn. Metric: accuracy.
    """

    name = "rotation"
    title = "Mental rotation"
    statements = re.compile(
        r"Figure \d{1,2} is (?:the figure in the top row, rotated"
        r"|(?:the mirror image of|another shape than) the figure in the top row)\."
    )
    skills = ("spatial",)
    attempts = 10_000
    Config = RotationConfig
    State = RotationState
    prompt_template = PROMPT_V1
    no_text_observation = "its figures are not described"
    perception_form = "what the figures look like"

    def generate(self, rng: np.random.Generator) -> RotationState | None:
        c = self.config
        figure = grow(rng, c.cells, c.solid)
        key, mirror = canonical(figure, c.solid), mirrored(figure)
        if key == canonical(mirror, c.solid) or (c.solid and not (all(map(max, zip(*figure))) and is_clear(figure))):
            return None  # symmetric, flat or unclear
        shapes, known = [mirror], {key, canonical(mirror, c.solid)}
        for _ in range(20 * c.choices):
            if len(shapes) == c.choices - 1:
                break
            other = vary(rng, figure, c.solid)
            if other is not None and rng.random() < 0.5:
                other = mirrored(other)
            if other is not None and canonical(other, c.solid) not in known:
                shapes.append(other)
                known.add(canonical(other, c.solid))
        order = rng.permutation(c.choices).tolist()
        choices = [self._turned(rng, ([figure, *shapes])[index], figure) for index in order if index <= len(shapes)]
        if len(shapes) < c.choices - 1 or None in choices:
            return None
        angle = ANGLE * int(rng.integers(24))
        angles = [0 if c.solid else (angle + ANGLE * int(rng.integers(3, 22))) % 360 for _ in choices]
        return RotationState(
            answer=order.index(0) + 1,
            figures=(figure, *(choice for choice in choices if choice is not None)),
            angles=(0 if c.solid else angle, *angles),
        )

    def _turned(self, rng: np.random.Generator, shape: Figure, figure: Figure) -> Figure | None:
        """Return a flat shape unchanged, or a random clear view of a solid shape.

        The view differs from `figure`; None if there is no such view.
        """
        if not self.config.solid:
            return shape
        clear = [view for view in views(shape) if view != figure]
        return pick(rng, clear) if clear else None

    def paint(self, state: RotationState) -> list[ImageArray]:
        drawn = [faces(figure, angle, self.config.solid) for figure, angle in zip(state.figures, state.angles)]
        edge = self._side * 0.84 / max(map(extent, drawn))
        image = self._background.copy()
        for number, ((x, y), figure) in enumerate(zip(self._centres, drawn)):
            reach = edge * extent(figure) / 2 + edge / 16 + 1
            left, top, side = int(x - reach), int(y - reach), int(2 * reach) + 2
            canvas = Canvas(side, side, PAGE if number else FRAME, left=left, top=top)  # a small canvas is fast
            paint_faces(canvas, figure, x, y, edge, BLACK)
            self._paint_label(canvas, number)
            image[top : top + side, left : left + side] = canvas.pixels()
        return [image]

    @cached_property
    def _background(self) -> ImageArray:
        canvas = Canvas(self.config.size, self.config.size, PAGE)
        canvas.rectangle(0, 0, self.config.size, self._side, FRAME)
        for number in range(self.config.choices + 1):
            self._paint_label(canvas, number)
        return canvas.pixels()

    def _paint_label(self, canvas: Canvas, number: int) -> None:
        if number:
            canvas.text(str(number), *self.label_at(number), self.config.size / 26, BLACK)

    def describe(self, state: RotationState) -> str:
        return NOT_DESCRIBED

    def prompt(self, state: RotationState) -> str:
        solid = self.config.solid
        return self.fill_prompt(
            kind="cubes, each at least partly visible," if solid else "squares",
            how=" in space" if solid else " in the plane",
        )

    def explain(self, state: RotationState, action: int) -> str:
        if action == state.answer:
            return f"Figure {action} is the figure in the top row, rotated."
        mirror = canonical(mirrored(state.figures[0]), self.config.solid)
        same = canonical(state.figures[action], self.config.solid) == mirror
        return (
            f"Figure {action} is {'the mirror image of' if same else 'another shape than'} the figure in the top row."
        )

    @property
    def _columns(self) -> int:
        return 2 if self.config.choices in (2, 4) else 3

    @property
    def _side(self) -> float:
        """Side of the square around a figure, in pixels."""
        return float(self.config.size / max(self._columns, 1 + math.ceil(self.config.choices / self._columns)))

    @property
    def _centres(self) -> list[tuple[float, float]]:
        size, side, columns = self.config.size, self._side, self._columns
        rows = [divmod(index, columns) for index in range(self.config.choices)]
        return [(size / 2, side / 2), *((size / columns * (c + 0.5), side * (r + 1.5)) for r, c in rows)]

    def label_at(self, number: int) -> tuple[float, float]:
        """Centre (x, y) of the number drawn next to a choice, in pixels."""
        x, y = self._centres[number]
        inset = self.config.size / 22
        return x - self.config.size / self._columns / 2 + inset, y - self._side / 2 + inset


# Figures --------------------------------------------------------------------------------------------------------------
#
# Figures made of unit cubes: rotations, mirror images, and visibility in an isometric view.

Cube = tuple[int, int, int]
Figure = tuple[Cube, ...]
"""Sorted cubes; the minimum along each axis is 0, and flat figures have z = 0 everywhere."""

Matrix = tuple[Cube, Cube, Cube]
NEIGHBOURS = ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))
VISIBLE_TRIANGLES = 2
"""Minimum number of visible triangles of each cube; a cube that nothing covers shows six."""


def _rotations() -> tuple[Matrix, ...]:
    """The 24 rotations of a cube; the first four are about the vertical axis."""
    rotations = []
    for axes, signs in product(permutations(range(3)), product((1, -1), repeat=3)):
        rows = tuple(tuple(sign if axis == column else 0 for column in range(3)) for axis, sign in zip(axes, signs))
        if round(np.linalg.det(np.array(rows))) == 1:
            rotations.append(rows)
    return tuple(sorted(rotations, key=lambda rows: rows[2] != (0, 0, 1)))  # type: ignore[arg-type]


ROTATIONS = _rotations()
FLAT = 4
"""Number of rotations about the vertical axis, which come first."""
_MATRICES = np.array(ROTATIONS).transpose(0, 2, 1)
_BASE = np.array((256, 16, 1))
"""Weights that turn the coordinates of a cube into one number; sorting the numbers sorts the cubes."""


def normalised(cubes: Figure | list[Cube]) -> Figure:
    """Move a figure to the origin and sort its cubes."""
    low = [min(axis) for axis in zip(*cubes)]
    return tuple(sorted((x - low[0], y - low[1], z - low[2]) for x, y, z in cubes))


@lru_cache(maxsize=4096)
def views(figure: Figure) -> tuple[Figure, ...]:
    """Return the distinct rotations of a solid figure that are clear (see `is_clear`), sorted."""
    different = {tuple(row) for row in _sorted_cubes(figure, _MATRICES).tolist()}
    turned = (tuple((cube >> 8, cube >> 4 & 15, cube & 15) for cube in row) for row in sorted(different))
    return tuple(view for view in turned if is_clear(view))


def mirrored(figure: Figure) -> Figure:
    """Mirror a figure."""
    return normalised([(-x, y, z) for x, y, z in figure])


@lru_cache(maxsize=4096)
def canonical(figure: Figure, solid: bool) -> tuple[int, ...]:
    """Return a key that a figure shares only with its rotations, in space if `solid`, else in the plane."""
    return tuple(min(_sorted_cubes(figure, _MATRICES if solid else _MATRICES[:FLAT]).tolist()))


def grow(rng: np.random.Generator, cubes: int, solid: bool, figure: Figure = ((0, 0, 0),)) -> Figure:
    """Add random adjacent cubes to a figure until it has `cubes` cubes."""
    grown = list(figure)
    while len(grown) < cubes:
        x, y, z = pick(rng, grown)
        dx, dy, dz = NEIGHBOURS[int(rng.integers(6 if solid else 4))]
        if (cube := (x + dx, y + dy, z + dz)) not in grown:
            grown.append(cube)
    return normalised(grown)


def vary(rng: np.random.Generator, figure: Figure, solid: bool) -> Figure | None:
    """Remove a random cube and add one at random; return None if the other cubes are not connected."""
    removed = int(rng.integers(len(figure)))
    rest = figure[:removed] + figure[removed + 1 :]
    return grow(rng, len(figure), solid, rest) if _is_connected(rest) else None


def _is_connected(figure: Figure) -> bool:
    cubes, reached, waiting = {*figure}, {figure[0]}, [figure[0]]
    while waiting:
        x, y, z = waiting.pop()
        near = {(x + dx, y + dy, z + dz) for dx, dy, dz in NEIGHBOURS} & cubes - reached
        reached |= near
        waiting += near
    return len(reached) == len(figure)


@lru_cache(maxsize=4096)
def is_clear(figure: Figure) -> bool:
    """True if an isometric view shows enough of every cube, and moving any single cube would change the view.

    Moves that disconnect the figure are not considered.
    """
    seen = _view(figure)
    shown = Counter((a, b) for a, b, _ in seen.values())
    if len(shown) < len(figure) or min(shown.values()) < VISIBLE_TRIANGLES:
        return False
    reach = range(-len(figure), len(figure) + 1)
    for index, (x, y, z) in enumerate(figure):
        rest = figure[:index] + figure[index + 1 :]
        beside = {(a + dx, b + dy, c + dz) for a, b, c in rest for dx, dy, dz in NEIGHBOURS} - {*rest}
        for k in reach:
            other = x + k, y + k, z + k  # on the same line of sight
            if k and other in beside and _is_connected((*rest, other)) and _view((*rest, other)) == seen:
                return False
    return True


def _view(figure: Figure) -> dict[frozenset[tuple[int, int]], tuple[int, int, int]]:
    """Return what each triangle of an isometric view shows: a cube, given by its projection, and one of its faces.

    The view is a lattice of triangles. Cubes are painted from back to front, so a triangle shows the last cube there.
    """
    owners: dict[frozenset[tuple[int, int]], tuple[int, int, int]] = {}
    for cube in sorted(figure, key=sum):
        x, y, z = cube
        a, b = x - z, y - z  # projection of the lower back corner
        faces = (((a - 1, b - 1), (1, 0), (0, 1)), ((a + 1, b), (0, 1), (-1, -1)), ((a, b + 1), (1, 0), (-1, -1)))
        for face, ((oa, ob), edge, other_edge) in enumerate(faces):
            far = (oa + edge[0] + other_edge[0], ob + edge[1] + other_edge[1])
            for da, db in (edge, other_edge):
                owners[frozenset({(oa, ob), (oa + da, ob + db), far})] = a, b, face
    return owners


def _sorted_cubes(figure: Figure, matrices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rotate a figure by each matrix; return the sorted cubes as numbers (see `_BASE`), int64 (rotations, cubes)."""
    turned = np.array(figure) @ matrices
    turned -= turned.min(axis=1, keepdims=True)
    return np.sort(turned @ _BASE, axis=1)


# Drawing --------------------------------------------------------------------------------------------------------------
#
# Drawing of figures: flat figures at any angle, solid figures in an isometric view.

BLACK: Colour = (30, 32, 40)
BLUE = COLOURS["blue"]
SHADES = (blend(BLUE, WHITE, 0.62), blend(BLUE, WHITE, 0.25), blend(BLUE, BLACK, 0.3))
"""Colours of the top, left and right faces of a cube; flat figures use the second."""


def faces(figure: Figure, angle: int, solid: bool) -> list[Face]:
    """Return the faces of a figure from back to front, centred on the origin, in units of a cube's edge.

    `angle` is the rotation of a flat figure in degrees counter-clockwise; it has no effect on solid figures.
    """
    drawn = _solid_faces(figure) if solid else [_square(x, y, angle) for x, y, _ in figure]
    points = [point for _, face in drawn for point in face]
    middle_x = (min(x for x, _ in points) + max(x for x, _ in points)) / 2
    middle_y = (min(y for _, y in points) + max(y for _, y in points)) / 2
    return [(colour, [(x - middle_x, y - middle_y) for x, y in face]) for colour, face in drawn]


def extent(drawn: list[Face]) -> float:
    """Return the width or the height of a whole figure, whichever is larger, given its centred faces."""
    return max(2 * max(abs(x), abs(y)) for _, face in drawn for x, y in face)


def _square(x: int, y: int, angle: int) -> Face:
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    corners = ((x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1))
    return SHADES[1], [(px * cos + py * sin, py * cos - px * sin) for px, py in corners]


def _solid_faces(figure: Figure) -> list[Face]:
    drawn: list[Face] = []
    for x, y, z in sorted(figure, key=sum):
        neighbours = ((x, y, z + 1), (x, y + 1, z), (x + 1, y, z))
        sides = zip(neighbours, SHADES, cube_faces(x, y, z))
        drawn += [(shade, face) for cube, shade, face in sides if cube not in figure]
    return drawn
