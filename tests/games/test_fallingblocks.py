"""Falling blocks: pieces, landing (compared with a simulated fall), full rows, and the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.fallingblocks import FallingBlocksState, land, pieces, placements, rotation, width_of

GAME: Any = make_game("fallingblocks")
SQUARE = next(i for i, shape in enumerate(GAME.pieces) if shape == ((0, 0), (0, 1), (1, 0), (1, 1)))
BAR = next(i for i, shape in enumerate(GAME.pieces) if width_of(shape) == 4)


def test_pieces_are_all_one_sided_polyominoes() -> None:
    assert [len(pieces(cells)) for cells in (3, 4, 5)] == [2, 7, 18]


def fall(well: tuple[str, ...], shape: Any, column: int) -> tuple[list[str], int] | None:
    """Let a shape fall row by row from above the well, then remove full rows."""

    def blocked(top: int) -> bool:
        return any(
            top + down >= len(well) or (top + down >= 0 and well[top + down][column + right] != ".")
            for down, right in shape
        )

    top = -5
    while not blocked(top + 1):
        top += 1
    if top < 0:
        return None
    rows = [list(row) for row in well]
    for down, right in shape:
        rows[top + down][column + right] = "x"
    left = ["".join(row) for row in rows if "." in row]
    return ["." * len(well[0])] * (len(rows) - len(left)) + left, len(rows) - len(left)


rows = st.text(".x", min_size=5, max_size=5).filter(lambda row: "." in row)


@given(st.lists(rows, max_size=6), st.integers(3, 5), st.data())
def test_landing_agrees_with_a_fall_row_by_row(lower: list[str], cells: int, data: st.DataObject) -> None:
    well = ("." * 5,) * (8 - len(lower)) + tuple(lower)
    shape = data.draw(st.sampled_from(pieces(cells)))
    fitting = set(placements(well, shape))
    for turns in range(4):
        turned = rotation(shape, turns)
        for column in range(6 - width_of(turned)):
            found, expected = land(well, turned, column, "x"), fall(well, turned, column)
            assert ((column, turns) in fitting) == (expected is not None)
            assert (None if found is None else ([*found.well], found.cleared)) == expected


def test_the_game_ends_when_the_next_piece_does_not_fit() -> None:
    full = tuple("0" * 6 + "." for _ in range(9))
    state = FallingBlocksState(full, SQUARE)
    assert (GAME.ended(state), GAME.legal_actions(state)) == ("the next piece does not fit", ())
    assert set(GAME.legal_actions(FallingBlocksState(full, BAR))) == {(6, 1), (6, 3)}
    with pytest.raises(IllegalAction, match="not within the well"):
        GAME.step(FallingBlocksState(full, BAR), (4, 0), np.random.default_rng(0))
    with pytest.raises(IllegalAction, match="does not fit"):
        GAME.step(FallingBlocksState(full, BAR), (3, 0), np.random.default_rng(0))
    with pytest.raises(IllegalAction, match="does not fit"):
        GAME.explain(FallingBlocksState(full, BAR), (3, 0))


def test_full_rows_vanish_and_score() -> None:
    well = (".......",) * 7 + ("00000..", "11111..")
    step = GAME.step(FallingBlocksState(well, SQUARE), (5, 0), np.random.default_rng(0))
    assert (step.reward, step.state.well) == (2.0, ("." * 7,) * 9)
    assert step.info == {"cleared": 2}
