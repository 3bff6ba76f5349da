"""Visual analogies: only the answer fits the rules of the prompt, and the choices do not give it away."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.sandbox.games.matrices import ATTRIBUTES, predictions


def consistent(name: str, first: tuple[int, ...], second: tuple[int, ...], third: tuple[int, ...]) -> bool:
    """Return whether three rows of an attribute follow one rule of the prompt."""
    rows = (first, second, third)
    if all(len({*row}) == 1 for row in rows):
        return True
    steps = {int(step) for row in rows for step in np.diff(row)}
    if name in ("count", "size") and len(steps) == 1:
        return True
    return len({frozenset(row) for row in rows}) == 1 and all(len({*row}) == 3 for row in rows)


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_only_the_answer_fits(level: int) -> None:
    game, answers = make_game("matrices", reasoning=level), Counter[int]()
    for seed in range(40):
        state = game.start(np.random.default_rng(seed))
        fitting = []
        for number, option in enumerate(state.options, 1):
            columns = [*zip(*state.matrix, option)]
            if all(consistent(name, c[:3], c[3:6], c[6:]) for name, c in zip(ATTRIBUTES, columns)):
                fitting.append(number)
        assert fitting == [state.answer]
        assert len({*state.options}) == game.config.choices
        answers[state.answer] += 1
        changing = [len({*column[:3]}) > 1 for column in zip(*state.matrix)]
        assert sum(changing) == game.config.rules
    assert max(answers.values()) < 35


def test_every_choice_is_as_similar_to_the_others() -> None:
    for seed in range(10):
        options = make_game("matrices").start(np.random.default_rng(seed)).options
        differing = Counter[tuple[int, ...]]()
        for a, b in combinations(options, 2):
            count = sum(x != y for x, y in zip(a, b))
            differing[a] += count
            differing[b] += count
        assert len({*differing.values()}) == 1


@pytest.mark.parametrize(
    ("first", "second", "start", "ordered", "expected"),
    [
        ((1, 1, 1), (2, 2, 2), (0, 0), False, {0}),
        ((0, 1, 2), (1, 2, 3), (0, 1), True, {2}),
        ((0, 1, 2), (1, 2, 0), (2, 0), True, {1}),
        ((0, 1, 2), (0, 1, 2), (1, 2), True, {3, 0}),  # ambiguous
        ((0, 1, 2), (0, 1, 2), (1, 2), False, {0}),
        ((0, 0, 1), (2, 2, 3), (1, 1), True, set()),
    ],
)
def test_predictions(
    first: tuple[int, int, int], second: tuple[int, int, int], start: tuple[int, int], ordered: bool, expected: set[int]
) -> None:
    assert predictions(first, second, start, ordered) == expected
