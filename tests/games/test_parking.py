"""Parking: legal moves, solvable lots, shortest solutions and answers."""

from __future__ import annotations

import pytest

from tests.games.puzzles import RNG
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.parking import Parking, ParkingConfig, ParkingState, Vehicle

GAME = Parking(ParkingConfig(rows=4, columns=4, vehicles=3))
STATE = ParkingState((Vehicle(1, 2, True), Vehicle(3, 2, False), Vehicle(3, 3, True)), (0, 0, 0))
"""A lot with car A at the left of row 1 (counted from 0), B at the top of column 3, and C at the left of row 3."""


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ((0, 0), "A only moves left and right"),
        ((1, 1), "B only moves up and down"),
        ((0, 3), "A cannot leave the lot"),
        ((1, 0), "B cannot leave the lot"),
        ((3, 0), "is not an action"),
        ((0, 4), "is not an action"),
    ],
)
def test_illegal_moves(action: tuple[int, int], reason: str) -> None:
    with pytest.raises(IllegalAction, match=reason):
        GAME.step(STATE, action, RNG)


def test_the_red_car_waits_until_its_way_is_free() -> None:
    state = GAME.step(STATE, (0, 1), RNG).state
    with pytest.raises(IllegalAction, match=r"A is blocked at \(1, 3\)"):
        GAME.step(state, (0, 1), RNG)
    assert GAME.explain(state, (1, 2)) == "The red car A in row 1 ends in column 2; in its way: B. I move B down."
    blocked = GAME.step(GAME.step(state, (2, 1), RNG).state, (1, 2), RNG).state
    with pytest.raises(IllegalAction, match=r"B is blocked at \(3, 3\)"):
        GAME.step(blocked, (1, 2), RNG)
    state = GAME.step(GAME.step(state, (1, 2), RNG).state, (1, 2), RNG).state
    last = GAME.step(state, (0, 1), RNG)
    assert (last.reward, GAME.ended(last.state)) == (1.0, "the red car is at the exit")
    assert GAME.legal_actions(last.state) == ()


def test_description_and_legal_moves() -> None:
    assert GAME.describe(STATE).splitlines() == [
        "empty, empty, empty, B",
        "A, A, empty, B",
        "empty, empty, empty, empty",
        "C, C, C, empty",
    ]
    assert set(GAME.legal_actions(STATE)) == {(0, 1), (1, 2), (2, 1)}
