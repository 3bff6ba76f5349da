"""2048: rules (compared with gymnasium-2048), text, JSON and images."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium_2048.envs.twenty_forty_eight import TwentyFortyEightEnv
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vlmgym import make_game
from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.answers.choice import DIRECTIONS
from vlmgym.sandbox.games.game2048 import Board, Game2048, State2048, slide

EMPTY: Board = ((0,) * 4,) * 4
STUCK: Board = ((2, 4, 2, 4), (4, 2, 4, 2), (2, 4, 2, 4), (4, 2, 4, 2))


def game_2048(**overrides: Any) -> Game2048:
    game = make_game("2048", **overrides)
    assert isinstance(game, Game2048)
    return game


@st.composite
def boards(draw: st.DrawFn, largest: int = 5) -> Board:
    """Draw boards with 3 to 8 rows and columns, often with few kinds of tile, so that merges are frequent."""
    rows, columns = draw(st.integers(3, 8)), draw(st.integers(3, 8))
    exponents = st.lists(st.integers(0, largest), min_size=columns, max_size=columns)
    grid = draw(st.lists(exponents, min_size=rows, max_size=rows))
    return tuple(tuple(1 << e if e else 0 for e in row) for row in grid)


def exponents_of(board: Board) -> NDArray[np.uint8]:
    return np.array([[tile.bit_length() - 1 if tile else 0 for tile in row] for row in board], dtype=np.uint8)


def board_of(exponents: NDArray[np.uint8]) -> Board:
    return tuple(tuple(1 << int(e) if e else 0 for e in row) for row in exponents)


# Rules ------------------------------------------------------------------------------------------------------------


@given(boards(), st.integers(0, 3))
def test_slide_matches_gymnasium_2048(board: Board, action: int) -> None:
    expected, score, changed = TwentyFortyEightEnv.apply_action(exponents_of(board), action)
    after, gained = slide(board, action)
    assert after == board_of(expected)
    assert gained == score
    assert (after != board) == changed


@given(boards(largest=3))
def test_legal_actions_match_step_and_gymnasium_2048(board: Board) -> None:
    game, state = game_2048(rows=len(board), columns=len(board[0])), State2048(board)
    legal = game.legal_actions(state)
    for action in range(4):
        rng = np.random.default_rng(0)
        if action in legal:
            game.step(state, action, rng)
        else:
            with pytest.raises(IllegalAction, match="changes nothing"):
                game.step(state, action, rng)
            assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state
    if any(map(any, board)):  # the package does not terminate on an empty board, which never occurs
        assert (not legal) == TwentyFortyEightEnv.is_terminated(exponents_of(board))


@pytest.mark.parametrize("four", [0.0, 0.1, 0.5, 1.0])
def test_new_tiles_are_uniform(four: float) -> None:
    game, rng, trials = game_2048(four_probability=four), np.random.default_rng(1), 4000
    state = State2048(((2, 0, 0, 0), *EMPTY[1:]))
    counts: dict[tuple[int, int], int] = {}
    fours = 0
    for _ in range(trials):
        board = game.step(state, DIRECTIONS.index("right"), rng).state.board
        (cell,) = ((r, c) for r in range(4) for c in range(4) if board[r][c] and (r, c) != (0, 3))
        counts[cell] = counts.get(cell, 0) + 1
        fours += board[cell[0]][cell[1]] == 4
    assert len(counts) == 15
    expected = trials / 15
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 36.1  # p = 0.001 with 14 degrees of freedom
    assert abs(fours - trials * four) <= 4 * (trials * four * (1 - four)) ** 0.5


def test_full_board_without_equal_neighbours_ends_the_game() -> None:
    game = game_2048()
    assert game.ended(State2048(STUCK)) == "no move is left"
    assert game.legal_actions(State2048(STUCK)) == ()
    last_gap = State2048(((2, 4, 8, 16), (4, 2, 16, 8), (2, 4, 8, 16), (0, 64, 32, 128)))
    step = game.step(last_gap, DIRECTIONS.index("left"), np.random.default_rng(0))
    assert game.ended(step.state) == "no move is left"
    assert step.reward == 0.0


def test_goal_ends_the_game() -> None:
    game = game_2048(goal=16)
    state = State2048(((8, 8, 0, 0), *EMPTY[1:]))
    assert game.ended(state) is None
    step = game.step(state, DIRECTIONS.index("left"), np.random.default_rng(0))
    assert game.ended(step.state) == "goal reached"
    assert game.legal_actions(step.state) == ()
    assert game.best_action(step.state) is None
    assert game_2048().ended(step.state) is None


# Text -------------------------------------------------------------------------------------------------------------


def test_explanation_lists_merges_and_slides() -> None:
    game = game_2048()
    state = State2048(((4, 4, 0, 0), (0, 2, 0, 0), (0, 0, 0, 8), (0, 0, 0, 0)))
    expected = (
        "Rows: 4 4 0 0 (1) 0 2 0 0 (both) 0 0 0 8 (left) 0 0 0 0 (stuck), together 1. "
        "Columns: 4 0 0 0 (down) 4 2 0 0 (down) 0 0 0 0 (stuck) 0 0 8 0 (both), together both. I slide left."
    )
    assert game.explain(state, DIRECTIONS.index("left")) == expected


@pytest.mark.parametrize(
    ("board", "actions"),
    [
        (((4, 4, 0, 0), (8, 0, 0, 0), (8, 0, 0, 0), (2, 2, 0, 0)), {"left", "right"}),  # two in rows, one in a column
        (((4, 2, 0, 0), (4, 8, 0, 0), (2, 0, 0, 0), (0, 0, 0, 0)), {"up", "down"}),
        (((2, 4, 8, 0), (0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)), {"right", "down"}),  # nothing merges
    ],
)
def test_rule_merges_most_pairs(board: Board, actions: set[str]) -> None:
    action = game_2048().rule_action(State2048(board))
    assert action is not None
    assert DIRECTIONS[action] in actions


def test_rule_makes_moves_in_all_directions_equally_often() -> None:
    game, actions = game_2048(), []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        state = game.start(rng)
        while (action := game.rule_action(state)) is not None:
            actions.append(action)
            state = game.step(state, action, rng).state
    assert all(0.2 < actions.count(action) / len(actions) < 0.3 for action in range(4))


# JSON -------------------------------------------------------------------------------------------------------------


def state_json(board: object, variation_seed: object = 0) -> str:
    return json.dumps({"board": board, "variation_seed": variation_seed})


def with_cell(value: object) -> str:
    return state_json([[value, 0, 0, 0], *EMPTY[1:]])


@pytest.mark.parametrize(
    "text",
    [
        *map(with_cell, [1, 3, 6, -2, -1, 2**63, 10**100, 2.0, 2.5, "2", True, None, [2], {}, float("nan")]),
        *map(state_json, [EMPTY[1:], (*EMPTY, EMPTY[0]), (*EMPTY[1:], (0, 0, 0)), [[0] * 5] * 4, [], [0] * 16]),
        *(state_json(EMPTY, seed) for seed in ("0", 1.5)),
    ],
)
def test_invalid_states_are_rejected(text: str) -> None:
    with pytest.raises(StateError, match="invalid state of 2048"):
        game_2048().from_json(text)


# Images ----------------------------------------------------------------------------------------------------------


def test_tiles_look_different() -> None:
    game = game_2048(size=96)
    seen = {game.draw(State2048(((1 << e if e else 0, 0, 0, 0), *EMPTY[1:]))).tobytes() for e in range(21)}
    assert len(seen) == 21
