"""Mental rotation: exactly one choice is the figure, according to an independent search over rotations."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.sandbox.games.rotation import Figure, grow, is_clear

LEVELS = (1, 2, 3, 4, 5)


def views(figure: Figure, solid: bool, mirror: bool = False) -> set[Figure]:
    """Return a figure, or its mirror image, in all orientations; flat figures are rotated only in their plane."""
    found = set()
    for axes, signs in product(permutations(range(3)), product((1, -1), repeat=3)):
        if not solid and (axes[2] != 2 or signs[2] != 1):
            continue
        matrix = np.zeros((3, 3), dtype=int)
        matrix[range(3), axes] = signs
        if round(np.linalg.det(matrix)) == (-1 if mirror else 1):
            cubes = np.array(figure) @ matrix.T
            found.add(tuple(sorted(map(tuple, (cubes - cubes.min(axis=0)).tolist()))))
    return found


@pytest.mark.parametrize("level", LEVELS)
def test_one_choice_is_the_figure_and_one_its_mirror_image(level: int) -> None:
    game = make_game("rotation", reasoning=level)
    solid, answers = game.config.solid, set()
    for seed in range(20):
        state = game.start(np.random.default_rng(seed))
        figure, *choices = state.figures
        same, mirrored = views(figure, solid), views(figure, solid, mirror=True)
        assert not same & mirrored
        assert [choice in same for choice in choices].count(True) == 1
        assert choices[state.answer - 1] in same
        assert any(choice in mirrored for choice in choices)
        assert len({min(views(choice, solid)) for choice in choices}) == len(choices)
        if solid:
            assert figure not in choices
            assert all(map(is_clear, state.figures))
        answers.add(state.answer)
    assert answers == set(range(1, game.config.choices + 1))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 7))
def test_a_clear_view_shows_part_of_every_cube(seed: int, cubes: int) -> None:
    figure = grow(np.random.default_rng(seed), cubes, True)
    front = set()
    for x, y, z in figure:  # points on the faces towards the viewer; no cube may be in front of them
        for px, py, pz in ((x + 1, y + 0.5, z + 0.5), (x + 0.5, y + 1, z + 0.5), (x + 0.5, y + 0.5, z + 1)):
            for dx, dy, dz in (
                (0.25, -0.25, 0),
                (-0.25, 0.25, 0),
                (0.25, 0, -0.25),
                (0, 0.25, -0.25),
                (0, -0.25, 0.25),
            ):
                point = (px + dx * (px % 1 != 0), py + dy * (py % 1 != 0), pz + dz * (pz % 1 != 0))
                if not any(tuple(int(v + step) for v in point) in figure for step in np.arange(1e-3, 12, 0.02)):
                    front.add((x, y, z))
    if is_clear(figure):
        assert front == set(figure)
