"""Spot the difference: windows differ in one attribute each, answers count once, and both images are drawn."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.games.puzzles import RNG
from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.differences import Differences, DifferencesConfig, DifferencesState

GAME = Differences(DifferencesConfig(rows=2, columns=3, differences=2, mistakes=2, size=200))
STATE = DifferencesState(("012", "345"), ("112", "34d"))


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_windows_differ_in_one_attribute(level: int) -> None:
    game = make_game("differences", reasoning=level)
    for seed in range(10):
        words = game.describe(game.start(np.random.default_rng(seed))).replace("\n", ", ").split(", ")
        half = len(words) // 2
        unequal = [(a.split(), b.split()) for a, b in zip(words[:half], words[half:]) if a != b]
        assert len(unequal) == game.config.differences
        assert all((a[0] == b[0]) != (a[1] == b[1]) for a, b in unequal)


def test_right_and_wrong_answers() -> None:
    state, score = STATE, 0.0
    for cell, reward, end in (((0, 0), 0.5, None), ((0, 1), 0.0, None), ((1, 2), 0.5, "all differences")):
        step = GAME.step(state, cell, RNG)
        state, score = step.state, score + step.reward
        assert step.reward == reward
        assert (GAME.ended(state) or "").startswith(end or "")
        with pytest.raises(IllegalAction, match="has been named"):
            GAME.step(state, cell, RNG)
    assert score == 1.0
    wrong = GAME.step(GAME.step(STATE, (0, 1), RNG).state, (0, 2), RNG).state
    assert GAME.ended(wrong) == "2 wrong answers"
    assert GAME.legal_actions(wrong) == ()


def test_images_differ_only_where_windows_do() -> None:
    first, second = GAME.images(STATE)
    box = GAME.painter.geometry
    for row, column in product(range(2), range(3)):
        left, top, width, height = box.cell_box(row, column)
        area = slice(top, top + height), slice(left, left + width)
        assert (first[area] != second[area]).any() == ((row, column) in ((0, 0), (1, 2)))
