"""Sliding tiles: moves, solvable boards and shortest solutions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.games.puzzles import RNG
from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.sliding import Sliding, SlidingConfig, SlidingState, distance


@pytest.mark.parametrize(
    ("action", "after"), [(0, (1, 5, 3, 4, 0, 6)), (1, (0, 1, 3, 4, 5, 6)), (3, (1, 3, 0, 4, 5, 6))]
)
def test_a_tile_slides_into_the_gap(action: int, after: tuple[int, ...]) -> None:
    game = Sliding(SlidingConfig(rows=2, columns=3))
    tiles = (1, 0, 3, 4, 5, 6)
    assert game.step(SlidingState(tiles, 4), action, RNG).state.tiles == after
    with pytest.raises(IllegalAction, match="no tile can slide down"):
        game.step(SlidingState(tiles, 4), 2, RNG)


@pytest.mark.parametrize("shuffle", range(1, 26))
def test_shuffling_ends_although_12_moves_lead_back_on_the_smallest_board(shuffle: int) -> None:
    game = make_game("sliding", rows=2, columns=2, shuffle=shuffle)
    assert game.ended(game.start(np.random.default_rng(shuffle))) is None


def test_the_score_is_the_share_of_the_distance_and_never_negative() -> None:
    game = make_game("sliding")
    state = game.start(np.random.default_rng(0))
    rng, score = np.random.default_rng(1), 0.0
    for _ in range(40):
        legal = game.legal_actions(state) or ()
        step = game.step(state, legal[int(rng.integers(len(legal)))], rng)
        state, score = step.state, score + step.reward
        assert score == pytest.approx(max(0.0, 1 - distance(state.tiles, 3) / state.par))
