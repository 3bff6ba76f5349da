"""Solitaire: rules, dealing, and the search for the longest plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.games.solitaire import DECK, SolitaireState, fits, longest_plan

GAME: Any = make_game("solitaire", rows=3, columns=3)
STATE = SolitaireState("Kh", (("2c", "5d", "3s"), ("As", "Qd", "")))
Columns = tuple[tuple[int, ...], ...]


def test_adjacent_ranks_of_the_lowest_cards_can_be_played() -> None:
    assert GAME.legal_actions(STATE) == ((2, 0), (2, 1))
    after = GAME.step(STATE, (2, 0), np.random.default_rng(0))
    assert after.state == SolitaireState("As", (("2c", "5d", "3s"), ("", "Qd", "")))
    assert after.reward == pytest.approx(1 / 6)
    for action, reason in (
        ((1, 0), "not the lowest card"),
        ((2, 2), "no card to play"),
        ((0, 1), "no card to play"),
        ((1, 2), "not one rank above or below the K of hearts"),
    ):
        with pytest.raises(IllegalAction, match=reason):
            GAME.step(STATE, action, np.random.default_rng(0))


def longest(columns: Columns, base: int) -> int:
    """Return the largest number of cards that can be played, by exhaustive search."""
    return max(
        (
            1 + longest((*columns[:i], column[:-1], *columns[i + 1 :]), column[-1])
            for i, column in enumerate(columns)
            if column and fits(column[-1], base)
        ),
        default=0,
    )


ranks = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(st.lists(ranks, min_size=1, max_size=3).map(tuple), st.integers(0, 4))
def test_plans_are_legal_and_longest(columns: Columns, base: int) -> None:
    plan = longest_plan(columns, base, 10**6)
    assert len(plan) == longest(columns, base)
    left = [list(column) for column in columns]
    for column in plan:
        rank = left[column].pop()
        assert fits(rank, base)
        base = rank


def test_words_and_drawings_of_all_cards_differ() -> None:
    assert len({GAME.cell_words(card) for card in DECK}) == 52
    drawn = {GAME.painter.paint([[card] * 3] * 3).tobytes() for card in DECK}
    assert len(drawn) == 52
