"""Minesweeper: numbers, opening, and deduction, compared with all possible mine layouts."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.sandbox.core.board_game import cells_of
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.games.minesweeper import MinesweeperState, deduce, neighbours

ROWS, COLUMNS, CELLS = 4, 4, 16
NEAR = neighbours(ROWS, COLUMNS)


def number(mines: frozenset[int], cell: int) -> int:
    row, column = divmod(cell, COLUMNS)
    around = [(r, c) for r in range(ROWS) for c in range(COLUMNS) if max(abs(r - row), abs(c - column)) == 1]
    return sum(r * COLUMNS + c in mines for r, c in around)


def opened(mines: frozenset[int], cell: int, found: set[int]) -> set[int]:
    """Open a cell, and the cells around it if it has no adjacent mine, recursively."""
    if cell not in found:
        found.add(cell)
        if number(mines, cell) == 0:
            for other in cells_of(NEAR[cell]):
                opened(mines, other, found)
    return found


layouts = st.frozensets(st.integers(0, CELLS - 1), min_size=1, max_size=6)


@given(layouts, st.data())
def test_opening_shows_the_numbers_that_the_rules_give(mines: frozenset[int], data: st.DataObject) -> None:
    game = make_game("minesweeper", rows=ROWS, columns=COLUMNS, mines=len(mines), compared=0)
    safe = sorted(set(range(CELLS)) - mines)
    cell = data.draw(st.sampled_from(safe))
    state = MinesweeperState(("....",) * 4, tuple(sorted(mines)), len(safe))
    step = game.step(state, divmod(cell, COLUMNS), np.random.default_rng(0))
    found = opened(mines, cell, set())
    expected = [str(number(mines, each)) if each in found else "." for each in range(CELLS)]
    assert "".join(step.state.board) == "".join(expected)
    assert step.reward == pytest.approx(len(found) / len(safe))
    assert (game.ended(step.state) is not None) == (len(found) == len(safe))
    lost = game.step(state, divmod(min(mines), COLUMNS), np.random.default_rng(0))
    assert (lost.reward, game.ended(lost.state), game.metrics(lost.state, [])["solved"]) == (
        0.0,
        "a mine was opened",
        0.0,
    )


@settings(max_examples=20)
@given(layouts, st.sets(st.integers(0, CELLS - 1), max_size=10), st.booleans())
def test_deduction_holds_in_all_layouts_that_fit(mines: frozenset[int], shown: set[int], pairs: bool) -> None:
    numbers = {cell: number(mines, cell) for cell in sorted(shown - mines)}
    proofs = deduce(NEAR, numbers, len(mines), pairs)
    hidden = [cell for cell in range(CELLS) if cell not in numbers]
    fits = [
        set(layout)
        for layout in combinations(hidden, len(mines))
        if all(number(frozenset(layout), cell) == count for cell, count in numbers.items())
    ]
    assert set(mines) in fits
    for cell, proof in proofs.items():
        assert all((cell in layout) == proof.mine for layout in fits)


@settings(max_examples=20)
@given(layouts, st.integers(0, 3))
def test_hidden_mines_reveal_nothing(mines: frozenset[int], seed: int) -> None:
    game: Any = make_game("minesweeper", rows=ROWS, columns=COLUMNS, mines=len(mines), compared=0, size=64)
    cell = sorted(set(range(CELLS)) - mines)[seed % (CELLS - len(mines))]
    found = opened(mines, cell, set())
    board = "".join(str(number(mines, each)) if each in found else "." for each in range(CELLS))
    hidden = [each for each in range(CELLS) if each not in found]
    states = [
        MinesweeperState(tuple(board[i : i + 4] for i in range(0, CELLS, 4)), layout, 5)
        for layout in combinations(hidden, len(mines))
        if all(number(frozenset(layout), each) == int(board[each]) for each in found)
    ][:6]
    actions = game.legal_actions(states[0])
    told = {
        (
            game.draw(state).tobytes(),
            *(shown(state) for shown in (game.describe, game.prompt, game.legal_actions, game.best_action)),
            *(game.explain(state, action) for action in actions),
        )
        for state in states
        if game.ended(state) is None
    }
    assert len(told) <= 1


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_no_level_needs_a_guess(level: int) -> None:
    game: Any = make_game("minesweeper", reasoning=level)
    for seed in range(5):
        episode = Episode(game, seed)
        while episode.ended is None:
            action = game.best_action(episode.state)
            assert game.explain(episode.state, action).endswith("safe.")
            episode.act(action)
        assert episode.score == pytest.approx(1)
