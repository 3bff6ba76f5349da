"""Shisen-Sho: rules, dealing, text and images."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.errors import GenerationError, IllegalAction
from vlmgym.sandbox.drawing.canvas import Canvas
from vlmgym.sandbox.games.shisensho import boards
from vlmgym.sandbox.games.shisensho.boards import Board, PathFinder
from vlmgym.sandbox.games.shisensho.game import ShisenSho, ShisenShoState
from vlmgym.sandbox.games.tiles import EMPTY, paint_colour_shape

KNOWN = {
    "o": EMPTY,
    "r": "red circle",
    "b": "blue square",
    "g": "green star",
    "y": "yellow heart",
    "p": "purple circle",
}
RNG = np.random.default_rng(0)  # unused, because steps of this game are deterministic


def game_of(**overrides: Any) -> ShisenSho:
    game = make_game("shisensho", **overrides)
    assert isinstance(game, ShisenSho)
    return game


def state_of(*rows: str) -> ShisenShoState:
    """Build a state from one letter per tile, `o` for an empty cell."""
    return ShisenShoState(tuple(tuple(KNOWN[letter] for letter in row) for row in rows))


def game_for(state: ShisenShoState, **overrides: Any) -> ShisenSho:
    return game_of(rows=len(state.board), columns=len(state.board[0]), **overrides)


def start(game: ShisenSho, seed: int = 0) -> ShisenShoState:
    return game.start(np.random.default_rng(seed))


def tiles_on(board: Board) -> Counter[str]:
    return Counter(tile for row in board for tile in row if tile != EMPTY)


# Moves ------------------------------------------------------------------------------------------------------------


def test_step_removes_only_two_tiles() -> None:
    state = state_of("rbgr", "bggb")
    game = game_for(state)
    step = game.step(state, (0, 3, 0, 0), RNG)
    assert step.state == state_of("obgo", "bggb")
    assert step.reward == 1.0
    assert step.info == {"tile": "red circle", "path": [[0, 3], [-1, 3], [-1, 0], [0, 0]]}
    assert json.loads(json.dumps(step.info)) == step.info
    assert game.step(state, (0, 0, 0, 3), RNG).state == step.state


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([{}, {"copies": 2}, {"rows": 4, "columns": 5}, {"turns": 1}]))
def test_random_play_removes_pairs_until_the_end(seed: int, overrides: dict[str, int]) -> None:
    game, rng = game_of(**overrides), np.random.default_rng(seed)
    state = game.start(rng)
    before, moves = tiles_on(state.board), 0
    while (legal := game.legal_actions(state)) != ():
        assert game.ended(state) is None
        assert [action[2:] + action[:2] in legal for action in legal] == [True] * len(legal)
        r1, c1, r2, c2 = legal[int(rng.integers(len(legal)))]
        step = game.step(state, (r1, c1, r2, c2), rng)
        after = tiles_on(step.state.board)
        assert before - after == Counter({state.board[r1][c1]: 2})
        assert step.state.board[r1][c1] == step.state.board[r2][c2] == EMPTY
        assert step.state.variation_seed == state.variation_seed
        state, before, moves = step.state, after, moves + 1
    left = before.total()
    assert left == game.config.rows * game.config.columns - 2 * moves
    assert game.ended(state) == ("no pair can be connected" if left else "cleared")
    assert game.metrics(state, []) == {"tiles left": left}


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ((0, 0, 3, 0), "(3, 0) is outside the 2 x 4 board"),
        ((0, -1, 1, 0), "(0, -1) is outside the 2 x 4 board"),
        ((1, 1, 1, 1), "same cell (1, 1)"),
        ((0, 2, 0, 0), "(0, 2) is empty"),
        ((0, 2, 0, 2), "same cell (0, 2)"),
        ((0, 0, 0, 1), "red circle at (0, 0), blue square at (0, 1)"),
        ((0, 1, 1, 0), "at most 2 turns connects the blue square at (0, 1) and the one at (1, 0)"),
    ],
)
def test_illegal_actions_have_a_reason(action: Any, reason: str) -> None:
    state = state_of("rbog", "brrg")
    game = game_for(state)
    with pytest.raises(IllegalAction, match=re.escape(reason)):
        game.step(state, action, RNG)


def test_reasons_use_the_origin_and_the_turns() -> None:
    state = state_of("rb", "br")
    for turns, words in ((0, "no straight path"), (1, "at most 1 turn "), (2, "at most 2 turns ")):
        with pytest.raises(IllegalAction, match=rf"{words}.*\(1, 1\).*\(2, 2\)"):
            game_for(state, turns=turns, origin=1).step(state, (0, 0, 1, 1), RNG)


# Dealing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solvable", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "copies", "per_kind"),
    [(6, 6, 4, [4] * 9), (6, 6, 2, [2] * 18), (6, 5, 4, [2] + [4] * 7), (2, 2, 4, [4]), (2, 3, 4, [2, 4])],
)
def test_number_of_tiles_per_kind(rows: int, columns: int, copies: int, per_kind: list[int], solvable: bool) -> None:
    game = game_of(rows=rows, columns=columns, copies=copies, solvable=solvable)
    for seed in range(5):
        state = start(game, seed)
        assert sorted(tiles_on(state.board).values()) == per_kind
        assert game.ended(state) is None
        game.check_state(state)


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(2, 9), st.integers(0, 4), st.integers(0, 2**32))
def test_removal_order_is_legal(half_rows: int, columns: int, turns: int, seed: int) -> None:
    """Pairs can be removed in this order, whatever tiles they get."""
    finder = PathFinder(2 * half_rows, columns, turns)
    pairs = boards.removal_order(finder, np.random.default_rng(seed))
    if pairs is None:
        assert turns == 0, "dead ends need turns=0"
        return
    tiles = sum(1 << square for line in finder.squares for square in line)
    for first, second in pairs:
        assert finder.path(first, second, tiles) is not None
        tiles ^= 1 << first | 1 << second
    assert not tiles


def test_only_unsolvable_deals_get_stuck() -> None:
    """With two copies, the order of removals does not matter, so any play shows whether a board can be cleared."""
    ends: dict[bool, set[str | None]] = {True: set(), False: set()}
    for solvable, seen in ends.items():
        game = game_of(copies=2, solvable=solvable)
        for seed in range(20):
            state = start(game, seed)
            while game.ended(state) is None:
                state = game.step(state, game.legal_actions(state)[0], RNG).state
            seen.add(game.ended(state))
    assert ends == {True: {"cleared"}, False: {"cleared", "no pair can be connected"}}


@pytest.mark.parametrize("solvable", [True, False])
def test_failed_deal_is_an_error(solvable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "MAX_DEALS", 1)
    game = game_of(rows=8, columns=8, copies=2, turns=0, solvable=solvable, colours=8)
    wanted = "can be cleared" if solvable else "connected pair"
    with pytest.raises(GenerationError, match=wanted):
        [start(game, seed) for seed in range(100)]  # about a third (if solvable) or a thirtieth of the deals fail


# Text -------------------------------------------------------------------------------------------------------------


def test_explanation_lists_pairs_up_to_the_chosen_one() -> None:
    state = state_of("rbgro", "bggbr")
    assert game_for(state, origin=1).explain(state, (1, 1, 1, 2)) == (
        "Equal tiles and the turns of the path between them: blue square, (1, 2) (2, 1) none; "
        "blue square, (1, 2) (2, 4) none; blue square, (2, 1) (2, 4) 2; green star, (1, 3) (2, 2) none; "
        "green star, (1, 3) (2, 3) 0; green star, (2, 2) (2, 3) 0. I choose green star, (2, 2) (2, 3)."
    )


def test_explanation_of_a_large_board_lists_the_chosen_pair() -> None:
    state = state_of("rrbbg", "rrbbo", "rrbbo", "rrbbg")
    explanation = game_for(state).explain(state, (3, 4, 0, 4))
    assert explanation.count(";") < 20
    assert explanation.endswith("; green star, (0, 4) (3, 4) 0. I choose green star, (3, 4) (0, 4).")


# Images ---------------------------------------------------------------------------------------------------------


def test_similarity_blends_colours() -> None:
    def middle(colour: str, similarity: float) -> Any:
        canvas = Canvas(40, 40, (0, 0, 0))
        paint_colour_shape(canvas, f"{colour} circle", similarity=similarity)
        return canvas.pixels()[20, 20].astype(int)

    apart = [abs(middle("red", share) - middle("blue", share)).sum() for share in (0.0, 0.3, 0.6, 1.0)]
    assert apart == sorted(apart, reverse=True)
    assert apart[0] > 300
    assert apart[-1] == 0
