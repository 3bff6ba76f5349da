"""Checks of prompts, answers and responses."""

from __future__ import annotations

from itertools import islice

import numpy as np
from gymnasium import spaces

from vlmgym.errors import ParseError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.reward import Outcome, score_response
from vlmgym.testing.states import AnyGame, Seeds, legal_actions, sample_actions, sample_states

DOUBTFUL = ("{0} or {0}", "{0} {0}", "not {0}", "maybe {0}", "{0}?", "{0}...", "~~{0}~~")
"""Answers that mention an action without clearly choosing it; `{0}` is the formatted action."""


def check_format_and_parse(game: AnyGame, seeds: Seeds) -> None:
    """Check that `parse` inverts `format`, and raises `ParseError` for malformed or ambiguous responses."""
    for action in sample_actions(game):
        text = game.format(action)
        back = game.parse_answer(text)
        assert back == action, f"the action {action!r} is formatted as {text!r}, which is parsed as {back!r}"
        response = response_format.compose("", "", text)
        assert game.parse(response) == action, f"{response!r} is not parsed as {action!r}"
        answer = response_format.answer_only(text)
        for wrong in (text, answer * 2, f"<answer>{text}", f"<think>{answer}"):
            _assert_unparsable(game, wrong)
        if not isinstance(game.action_space, spaces.Text):
            for doubtful in DOUBTFUL:
                _assert_unparsable(game, response_format.answer_only(doubtful.format(text)))
    for answer in ("", "   ", "9" * 5000):
        _assert_unparsable(game, f"<answer>{answer}</answer>")
    if not isinstance(game.action_space, spaces.Text):
        for answer in ("no action at all", "<answer>", "\u00b9", "\x00"):
            _assert_unparsable(game, f"<answer>{answer}</answer>")


def check_responses(game: AnyGame, seeds: Seeds) -> None:
    """Check that `respond` gives a response that plays the action with perfect format and perception."""
    for state in sample_states(game, seeds):
        if game.ended(state) is not None:
            continue
        legal = legal_actions(game, state)
        for action in [*legal[:5], *islice(sample_actions(game), 5)]:
            response = game.respond(state, action)
            scored = score_response(game, state, response, np.random.default_rng(0))
            assert scored.action == action, f"{response!r} plays {scored.action!r}, not {action!r}"
            played = scored.outcome is Outcome.PLAYED
            assert played or action not in legal, f"{response!r} is {scored.outcome.value}, not played"
            assert scored.format == 1.0, f"the format of {response!r} scores {scored.format}"
            assert scored.perception in (None, (1.0, 1.0)), f"the perception of {response!r} scores {scored.perception}"


def check_prompt(game: AnyGame, seeds: Seeds) -> None:
    """Check that the prompt names all sections of a response."""
    for state in sample_states(game, seeds):
        prompt = game.prompt(state)
        for section in response_format.SECTIONS:
            assert f"<{section}>" in prompt, f"the prompt does not mention <{section}>: {prompt!r}"


def _assert_unparsable(game: AnyGame, response: str) -> None:
    try:
        action = game.parse(response)
    except ParseError as error:
        reason = str(error)
    else:
        raise AssertionError(f"parse reads {response[:80]!r} as the action {action!r}")
    assert reason, f"parse rejects {response[:80]!r} without a reason"
