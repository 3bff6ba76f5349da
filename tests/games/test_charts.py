"""Charts: answers follow from the values, which can be measured in the image."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.sandbox.drawing.canvas import LOOKS
from vlmgym.sandbox.games.charts import ABOVE, BASE, LEFT, RIGHT, STEP, TOP, ChartsState

RNG = np.random.default_rng(0)


def answered(state: ChartsState) -> str:
    """Answer a question from its words and the values."""
    values = dict(zip(state.names, state.values))
    named = [values[word] for word in re.findall(r"\w+", state.question) if word in values]
    if "What is the value" in state.question:
        return str(named[0])
    if "how much larger" in state.question.lower():
        return str(named[0] - named[1])
    if "How many" in state.question:
        limit = int(re.findall(r"\d+", state.question)[0])
        return str(sum(value > limit for value in values.values()))
    if "sum" in state.question:
        return str(max(values.values()) + min(values.values()))
    wanted = max(values.values()) if "largest" in state.question else min(values.values())
    (name,) = (name for name, value in values.items() if value == wanted)
    return name


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_answers_follow_from_the_values(level: int) -> None:
    game, seen = make_game("charts", reasoning=level), Counter[str]()
    for seed in range(60):
        state = game.start(np.random.default_rng(seed))
        assert answered(state) == state.answer
        assert all(value % STEP == 0 and STEP <= value <= TOP for value in state.values)
        assert sum(state.values) == TOP or state.chart != "pie"
        seen.update((state.kind, state.chart))
    assert len(seen) == game.config.kinds + 4


def test_bars_are_as_high_as_their_values() -> None:
    game = make_game("charts", reasoning=1, size=500, shade=0.0)
    for seed in range(40):
        state = game.start(np.random.default_rng(seed))
        if state.chart != "bar":
            continue
        image, look = game.images(state)[0], LOOKS[state.look]
        for index, value in enumerate(state.values):
            column = round((LEFT + (RIGHT - LEFT) * (index + 0.5) / len(state.values)) / 2)
            high = (np.abs(image[:, column].astype(int) - look.accents[index]).max(axis=1) < 3).sum()
            assert high == pytest.approx((BASE - ABOVE - 30) * value / TOP / 2, abs=3)


def test_percent_signs_are_accepted_for_pies_only() -> None:
    game = make_game("charts", reasoning=1)
    states = [game.start(np.random.default_rng(seed)) for seed in range(60)]
    for state in states:
        if state.kind == "value":
            assert game.step(state, f"{state.answer}%", RNG).reward == float(state.chart == "pie")
            assert game.step(state, f"**{state.answer}**", RNG).reward == 1.0
            assert game.step(state, str(int(state.answer) + STEP), RNG).reward == 0.0
