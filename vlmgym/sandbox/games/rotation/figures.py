"""Figures made of unit cubes: rotations, mirror images, and visibility in an isometric view."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

Cube = tuple[int, int, int]
Figure = tuple[Cube, ...]
"""Sorted cubes; the minimum along each axis is 0, and flat figures have z = 0 everywhere."""

Matrix = tuple[Cube, Cube, Cube]
NEIGHBOURS = ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))
VISIBLE_TRIANGLES = 2
"""Minimum number of visible triangles of each cube; a cube that nothing covers shows six."""


def _rotations() -> tuple[Matrix, ...]:
    """The 24 rotations of a cube; the first four are about the vertical axis."""
    found = []
    for axes, signs in product(permutations(range(3)), product((1, -1), repeat=3)):
        rows = tuple(tuple(sign if axis == column else 0 for column in range(3)) for axis, sign in zip(axes, signs))
        if round(np.linalg.det(np.array(rows))) == 1:
            found.append(rows)
    return tuple(sorted(found, key=lambda rows: rows[2] != (0, 0, 1)))  # type: ignore[arg-type]


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
    found = (tuple((cube >> 8, cube >> 4 & 15, cube & 15) for cube in row) for row in sorted(different))
    return tuple(view for view in found if is_clear(view))


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
        x, y, z = grown[int(rng.integers(len(grown)))]
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
    reached, waiting = {figure[0]}, [figure[0]]
    while waiting:
        x, y, z = waiting.pop()
        near = {(x + dx, y + dy, z + dz) for dx, dy, dz in NEIGHBOURS} & set(figure) - reached
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
        for k in reach:
            other = x + k, y + k, z + k  # on the same line of sight
            if k and other not in rest and _is_connected((*rest, other)) and _view((*rest, other)) == seen:
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
        for face, ((oa, ob), one, other) in enumerate(faces):
            far = (oa + one[0] + other[0], ob + one[1] + other[1])
            for da, db in (one, other):
                owners[frozenset({(oa, ob), (oa + da, ob + db), far})] = a, b, face
    return owners


def _sorted_cubes(figure: Figure, matrices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rotate a figure by each matrix; return the sorted cubes as numbers (see `_BASE`), int64 (rotations, cubes)."""
    turned = np.array(figure) @ matrices
    turned -= turned.min(axis=1, keepdims=True)
    return np.sort(turned @ _BASE, axis=1)
