"""Stacks: moves, shortest solutions and spellings."""

from __future__ import annotations

import pytest

from tests.games.puzzles import RNG, oracle_turns
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.stacks import Stacks, StacksConfig, StacksState

GAME = Stacks(StacksConfig(rows=3, columns=3))


def test_the_tower_of_hanoi_takes_the_known_number_of_moves() -> None:
    for blocks in range(2, 8):
        game = Stacks(StacksConfig(rows=blocks, columns=3))
        state = StacksState((0,) * blocks, 2, 2**blocks - 1)
        assert oracle_turns(game, state) == 2**blocks - 1


def test_only_narrower_blocks_may_be_put_on_top() -> None:
    state = StacksState((0, 1, 0), 2, 5)
    assert GAME.describe(state).splitlines() == [
        "empty, empty, empty",
        "block 1, empty, empty",
        "block 3, block 2, empty",
    ]
    assert GAME.legal_actions(state) == ((0, 1), (0, 2), (1, 2))
    assert GAME.step(state, (0, 1), RNG).state.at == (1, 1, 0)
    for action, reason in (
        ((1, 0), "upper block of stack 1 is wider than that of stack 0"),
        ((2, 0), "stack 2 is empty"),
        ((1, 1), "must be different, both are 1"),
        ((0, 3), "there is no stack 3"),
    ):
        with pytest.raises(IllegalAction, match=reason):
            GAME.step(state, action, RNG)


def test_the_score_is_the_share_of_moves_and_never_negative() -> None:
    state, score, scores = StacksState((1, 0, 0), 2, 7), 0.0, []
    for move in ((1, 2), (0, 1), (2, 1), (0, 2), (1, 2)):
        step = GAME.step(state, move, RNG)
        state, score = step.state, score + step.reward
        scores.append(score)
    assert scores == pytest.approx([1 / 7, 2 / 7, 3 / 7, 4 / 7, 4 / 7])
    assert GAME.step(StacksState((1, 0, 0), 2, 6), (0, 2), RNG).reward == 0.0
