"""Blocks: answers, and heights that the image determines."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from tests.games.puzzles import RNG
from vlmgym import make_game
from vlmgym.sandbox.games.blocks import make_heights, solve, visible_halves

HEIGHTS = ((3, 1), (0, 2))


def test_answers_by_hand() -> None:
    assert [solve(kind, HEIGHTS) for kind in ("cubes", "front", "right", "missing")] == [6, 5, 5, 6]


@pytest.mark.parametrize("level", [1, 3, 5])
def test_answers_from_a_box_of_cubes(level: int) -> None:
    game = make_game("blocks", reasoning=level)
    c, kinds = game.config, set()
    for seed in range(40):
        state = game.start(np.random.default_rng(seed))
        box = np.arange(c.height) < np.array(state.heights)[..., None]  # rows, columns, heights
        counts = {"cubes": box.sum(), "front": box.any(axis=0).sum(), "right": box.any(axis=1).sum()}
        counts["missing"] = box[..., : box.any(axis=(0, 1)).sum()].size - box.sum()
        assert state.answer == counts[state.kind]
        assert box.any()
        kinds.add(state.kind)
    assert len(kinds) == c.kinds


def test_images_determine_the_heights() -> None:
    game = make_game("blocks", rows=2, columns=2, height=3, size=96)
    state, images = game.start(RNG), []
    for heights in product(range(3), repeat=4):
        floor = heights[:2], heights[2:]
        if all(visible_halves(floor, row, column) for row, column in product(range(2), range(2))):
            images.append(game.images(replace(state, heights=floor))[0].astype(int))
    assert len(images) > 40
    for image, other in combinations(images, 2):
        assert (abs(image - other).max(axis=2) > 20).sum() > 100


def test_no_column_is_hidden() -> None:
    for seed in range(200):
        heights = make_heights(5, 5, 5, np.random.default_rng(seed))
        assert all(visible_halves(heights, row, column) for row, column in product(range(5), range(5)))
    assert visible_halves(((1, 0), (0, 2)), 0, 0) == 0
    assert visible_halves(((1, 0), (2, 0)), 0, 0) == 1
    assert visible_halves(((1, 1), (1, 1)), 0, 0) == 2
