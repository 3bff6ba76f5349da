"""Long responses are scored at once: a step that takes quadratic time would run for minutes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from vlmgym.sandbox.core.response_format import parse_response
from vlmgym.sandbox.core.reward import score_response
from vlmgym.sandbox.registry import game_ids, make_game

LENGTH = 100_000
ACCENTS = "\N{COMBINING GRAVE ACCENT BELOW}\N{COMBINING ACUTE ACCENT}"
"""Unicode normalisation has to sort a run of these accents."""
QUICK = ("geospot-v0", "sokoban-v0", "scenes-questions-v0")
"""Games that are not left to the slow tests: an answer of each kind, and statements that are checked."""
FILLERS = (
    " ",
    ACCENTS,
    "(",
    "1,",
    "-",
    "\n- ",
    "\\boxed{",
    "<answer",
    "<answer ",
    "<perception><think>",
    "</answer>",
    "<!--",
    "a",
    "1 ",
    "(9, 9) ",
)


@pytest.mark.parametrize(
    "game_id", [pytest.param(id, marks=() if id in QUICK else pytest.mark.slow) for id in game_ids()]
)
def test_long_responses_are_scored_at_once(game_id: str) -> None:
    game = make_game(game_id)
    state = game.start_at(0, np.random.default_rng(0))
    action = game.best_action(state)
    description, answer, response = game.describe(state), game.answer.format(action), game.respond(state, action)
    thought = parse_response(response).thought
    for place, text in (("perception", description), ("answer", answer), ("think", thought), ("", response)):
        tokens = re.findall(r"\w+|\s+|.", text)[:20]
        for filler in FILLERS:
            gap = filler * (LENGTH // len(tokens) // len(filler))
            for long in (gap.join([*tokens, "x"]), tokens[0] + filler * (LENGTH // len(filler))):
                score_response(game, state, f"<{place}>{long}</{place}>" if place else long, np.random.default_rng(0))
                if place == "think":
                    game.check_reasoning(state, long)
