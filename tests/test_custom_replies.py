"""Prompts that custom policies get, and replies that they return."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vlmgym
from vlmgym.errors import PolicyError, UsageError
from vlmgym.evaluation import Budget, evaluate
from vlmgym.policies import Prompt, Reply, random_response

GAME = vlmgym.make_game("2048", size=64)
FULL: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 7, "finish_reason": "stop", "reasoning": "hm"}
FULL |= {"latency": 0.25, "requests": 2, "model": "mine"}


def full(prompt: Prompt) -> Reply:
    return Reply(random_response(prompt), **FULL)


def counted(images: Any, prompts: list[Prompt]) -> list[str | Reply]:
    """Return replies on odd turns and strings on even ones."""
    return [full(prompt) if prompt.turn % 2 else random_response(prompt) for prompt in prompts]


async def counted_async(images: Any, prompts: list[Prompt]) -> list[str | Reply]:
    return counted(images, prompts)


@pytest.mark.parametrize("function", [counted, counted_async])
def test_replies_are_recorded(function: Any) -> None:
    for record in evaluate(GAME, function, 2, max_turns=4, workers=0):
        for turn in record.turns:
            details = {name: getattr(turn, name) for name in FULL}
            if turn.turn % 2 == 0:  # records count turns from 1, prompts from 0
                assert details == FULL
            else:
                assert details.pop("latency") >= 0
                assert set(details.values()) == {None}


@pytest.mark.parametrize("response", ["<answer>up</answer>", Reply("<answer>up</answer>", prompt_tokens=3)])
def test_budget_requires_token_counts(response: str | Reply) -> None:
    def mine(images: Any, prompts: list[Prompt]) -> list[str | Reply]:
        return [response for _ in prompts]

    with pytest.raises(PolicyError, match=r"prompt_tokens and completion_tokens"):
        evaluate(GAME, mine, 1, max_turns=1, workers=0, budget=Budget(budget_tokens=10))


def test_prompt_attributes() -> None:
    seen = []

    def function(images: list[list[np.ndarray]], prompts: list[Prompt]) -> list[str]:
        for own, prompt in zip(images, prompts, strict=True):
            assert prompt.images is own
            seen.append(prompt)
        return [*map(random_response, prompts)]

    records = evaluate(GAME, function, 2, max_turns=3, seed=5, workers=0, history=1, history_images=1)
    by_id = {f"{record.game.id}/{record.seed}": record for record in records}
    assert len(seen) == sum(len(record.turns) for record in records) == 6
    for prompt in seen:
        record = by_id[prompt.episode_id]
        assert (prompt.game, prompt.seed) == (GAME, record.seed)
        assert prompt == prompt.text == record.turns[prompt.turn].prompt
        assert type(prompt.text) is str
        assert [image.shape for image in prompt.images] == [(64, 64, 3)] * (2 if prompt.turn else 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": None}, "text .* string, got NoneType"),
        ({"reasoning": ["hm"]}, "reasoning .* string, got list"),
        ({"prompt_tokens": -1}, "prompt_tokens .* at least 0, got -1"),
        ({"completion_tokens": 1.5}, "completion_tokens .* integer .* got 1.5"),
        ({"latency": math.nan}, "latency .* seconds, got nan"),
    ],
)
def test_invalid_replies(values: Any, message: str) -> None:
    def mine(images: Any, prompts: list[Prompt]) -> list[Reply]:
        return [Reply(**{"text": "up", **values}) for _ in prompts]

    with pytest.raises(UsageError, match=message):
        Reply(**{"text": "up", **values})
    with pytest.raises(
        PolicyError, match=rf"mine raised UsageError: {message} \(.*test_custom_replies\.py, line \d+\)"
    ):
        evaluate(GAME, mine, 1, max_turns=1, workers=0)


def test_numpy_values_and_lone_surrogates_are_recorded_as_json() -> None:
    class Text(str):
        pass

    def function(images: Any, prompts: list[Prompt]) -> list[Reply]:
        half = "\ud800"
        tokens, seconds = np.int32(3), np.float32(0.5)
        return [Reply(Text(half), tokens, tokens, half, half, seconds, np.int64(1), half) for _ in prompts]

    (record,) = evaluate(GAME, function, 1, max_turns=1, workers=2)
    assert type(record).model_validate_json(record.model_dump_json()) == record
    (turn,) = record.turns
    assert (turn.prompt_tokens, turn.completion_tokens, turn.latency, turn.requests) == (3, 3, 0.5, 1)
    assert {turn.response, turn.finish_reason, turn.reasoning, turn.model} == {r"\ud800"}
