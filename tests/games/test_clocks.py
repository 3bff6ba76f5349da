"""Clocks: answers follow from the times, hands point at them, and times are read in every spelling."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import numpy as np
import pytest

from vlmgym import make_game
from vlmgym.sandbox.games.clocks import ClocksState, written

RNG = np.random.default_rng(0)


def answered(state: ClocksState) -> str:
    """Answer a question from its words and the described times."""
    times = {}
    for name, time in zip(state.names, state.times):
        hour, minute = map(int, written(time).split(":"))
        times[name] = datetime(2000, 1, 1, 12 + hour % 12, minute)
    shift = timedelta(minutes=int((re.findall(r"(\d+) minutes", state.question) or ["0"])[0]))
    if "How many minutes" in state.question:
        first, second = (times[name] for name in re.findall(r"clock ([A-H])", state.question))
        return str(int((second + shift - first).total_seconds()) // 60)
    base = max(times.values()) if "latest" in state.question else min(times.values())
    asked = base - shift if "before" in state.question else base + shift
    return f"{(asked.hour - 1) % 12 + 1}:{asked.minute:02}"


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_answers_follow_from_the_times(level: int) -> None:
    game = make_game("clocks", perception=level, reasoning=level)
    for seed in range(60):
        state = game.start(np.random.default_rng(seed))
        assert answered(state) == state.answer
        assert all(time % game.config.precision == 0 for time in state.times)


def test_times_are_read_in_every_spelling() -> None:
    game = make_game("clocks", reasoning=1)
    state = next(s for s in map(game.start, map(np.random.default_rng, range(500))) if s.times[0] // 60 == 3)
    minute = f"{state.times[0] % 60:02}"
    for right in (f"3:{minute}", f"03:{minute}", f"15:{minute}", f"3:{minute} PM", f"`3.{minute} p.m.`"):
        assert game.step(state, right, RNG).reward == 1.0, right
    for wrong in (f"4:{minute}", f"3:{minute} am", "3", f"27:{minute}"):
        assert game.step(state, wrong, RNG).reward == 0.0, wrong


@pytest.mark.parametrize(("time", "words"), [(0, "12:00"), (5, "12:05"), (65, "1:05"), (719, "11:59")])
def test_times_are_written_as_on_a_clock(time: int, words: str) -> None:
    assert written(time) == words


def test_the_minute_hand_points_at_the_minute() -> None:
    game = make_game("clocks", reasoning=1, perception=3, numerals="none", size=400)
    for seed in range(20):
        state = game.start(np.random.default_rng(seed))
        image = game.images(state)[0].astype(int)
        radius, ring = 0.38 * 400 * 0.6, []
        for minute in range(60):
            x = 200 + radius * np.sin(np.pi * minute / 30)
            y = 184 - radius * np.cos(np.pi * minute / 30)
            ring.append(image[round(y), round(x)])
        contrast = np.abs(np.array(ring) - np.median(ring, axis=0)).sum(axis=1)
        assert contrast.argmax() == state.times[0] % 60
