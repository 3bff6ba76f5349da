"""Words: prompts, answers and responses."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from vlmgym.errors import ParseError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.reward import Outcome, score_response
from vlmgym.testing.positions import AnyGame, Seeds, legal_actions, positions, sample_actions


def check_format_and_parse(game: AnyGame, seeds: Seeds) -> None:
    """`parse` inverts `format` for every action, and anything else is refused with `ParseError`."""
    for action in sample_actions(game):
        words = game.format(action)
        back = game.parse_answer(words)
        assert back == action, f"the action {action!r} is written {words!r}, which is read as {back!r}"
        response = response_format.compose("", "", words)
        assert game.parse(response) == action, f"{response!r} is not read as {action!r}"
        answer = response_format.answer_only(words)
        for wrong in (words, answer * 2, f"<answer>{words}", f"<think>{answer}"):
            _refuses_to_parse(game, wrong)
        if not isinstance(game.action_space, spaces.Text):
            _refuses_to_parse(game, response_format.answer_only(f"{words} or {words}"))
            _refuses_to_parse(game, response_format.answer_only(f"not {words}"))
    for answer in ("", "   ", "9" * 5000):
        _refuses_to_parse(game, f"<answer>{answer}</answer>")
    if not isinstance(game.action_space, spaces.Text):
        for answer in ("no action at all", "<answer>", "\u00b9", "\x00"):
            _refuses_to_parse(game, f"<answer>{answer}</answer>")


def check_responses(game: AnyGame, seeds: Seeds) -> None:
    """`respond` gives a response that plays its action with perfect form and perception."""
    for state in positions(game, seeds):
        for action in legal_actions(game, state)[:5]:
            response = game.respond(state, action)
            scored = score_response(game, state, response, np.random.default_rng(0))
            played = scored.outcome is Outcome.PLAYED and scored.action == action
            assert played, f"{response!r} is {scored.outcome.value} with {scored.action!r}, not {action!r} played"
            assert scored.format == 1.0, f"the form of {response!r} scores {scored.format}"
            assert scored.perception == (1.0, 1.0), f"the perception of {response!r} scores {scored.perception}"


def check_prompt(game: AnyGame, seeds: Seeds) -> None:
    """The prompt names the three sections of a response."""
    for state in positions(game, seeds):
        prompt = game.prompt(state)
        for section in response_format.SECTIONS:
            assert f"<{section}>" in prompt, f"the prompt does not name <{section}>: {prompt!r}"


def _refuses_to_parse(game: AnyGame, response: str) -> None:
    try:
        action = game.parse(response)
    except ParseError as error:
        reason = str(error)
    else:
        raise AssertionError(f"parse takes {response[:80]!r} for the action {action!r}")
    assert reason, f"parse refuses {response[:80]!r} without a reason"
