"""Matching pairs: rules, cards that neither images nor words reveal, and the oracle's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.errors import IllegalAction
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.games.pairs import KNOWN, NEW, PairsState

GAME: Any = make_game("pairs", rows=2, columns=4, size=128, patience=20)
STATE = PairsState(((1, 2, 3, 4), (1, 2, 3, 4)), ("....", "...."))


def play(*cells: tuple[int, int]) -> tuple[PairsState, list[float]]:
    state, rewards = STATE, []
    for cell in cells:
        step = GAME.step(state, cell, np.random.default_rng(0))
        state = step.state
        rewards.append(step.reward)
    return state, rewards


def test_partners_stay_face_up_and_others_are_turned_back_with_the_next_card() -> None:
    state, rewards = play((0, 0), (1, 0))
    assert state.sides == ("=...", "=...")
    assert rewards == [0.0, 0.25]
    state, rewards = play((0, 0), (1, 1))
    assert state.sides == ("!...", ".!..")
    state, rewards = play((0, 0), (1, 1), (0, 1))
    assert state.sides == ("?!..", ".?..")
    state, rewards = play((0, 0), (1, 1), (0, 1), (1, 1))
    assert state.sides == ("?=..", ".=..")
    assert rewards == [0.0, 0.0, 0.0, 0.25]


def test_cards_that_are_face_up_cannot_be_chosen() -> None:
    for cells in ([(0, 0)], [(0, 0), (1, 1)], [(0, 0), (1, 0)]):
        state, _ = play(*cells)
        assert cells[0] not in GAME.legal_actions(state)
        with pytest.raises(IllegalAction, match="already face up"):
            GAME.step(state, cells[0], np.random.default_rng(0))


def reached(seed: int, turns: int) -> PairsState:
    episode, rng = Episode(GAME, seed), np.random.default_rng(seed)
    for _ in range(turns):
        legal = GAME.legal_actions(episode.state)
        if legal:
            episode.act(legal[int(rng.integers(len(legal)))])
    state: PairsState = episode.state
    return state


def shuffled(state: PairsState, sides: str, seed: int) -> PairsState:
    """Shuffle the cards whose side is in `sides`."""
    cells = [(r, c) for r, line in enumerate(state.sides) for c, side in enumerate(line) if side in sides]
    cards = [list(line) for line in state.cards]
    for (row, column), source in zip(cells, np.random.default_rng(seed).permutation(len(cells)).tolist()):
        cards[row][column] = state.cards[cells[source][0]][cells[source][1]]
    return replace(state, cards=tuple(map(tuple, cards)))


@given(st.integers(0, 50), st.integers(0, 12), st.integers(0, 50))
def test_hidden_cards_reveal_nothing(seed: int, turns: int, other: int) -> None:
    state = reached(seed, turns)
    again = shuffled(state, NEW + KNOWN, other)
    assert np.array_equal(GAME.draw(state), GAME.draw(again))
    for shown in (GAME.describe, GAME.prompt, GAME.legal_actions, GAME.ended):
        assert shown(state) == shown(again)
    unseen = shuffled(state, NEW, other)
    best = GAME.best_action(state)
    assert best == GAME.best_action(unseen)
    for action in GAME.legal_actions(state):
        known = state.sides[action[0]][action[1]] == NEW
        assert not known or GAME.explain(state, action) == GAME.explain(unseen, action)
