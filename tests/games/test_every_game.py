"""Behaviour that all games share, beyond the checks of `vlmgym.testing`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from annotated_types import Ge, Le
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from vlmgym import game_ids, make_game
from vlmgym.errors import GenerationError, StateError, UsageError
from vlmgym.sandbox.answers.choice import Choice
from vlmgym.sandbox.games.blocks import Blocks
from vlmgym.sandbox.games.lightsout import LightsOut
from vlmgym.sandbox.questions import QuestionsConfig
from vlmgym.sandbox.registry import game_class

NAMED_ACTIONS = [id for id in game_ids() if isinstance(game_class(id).answer, Choice)]


@pytest.mark.parametrize("game_id", NAMED_ACTIONS)
def test_unknown_actions_are_not_formatted(game_id: str) -> None:
    game = make_game(game_id)
    for action in (-1, 99, "x", None, True, 1.0):
        with pytest.raises(UsageError, match=r"must be one of 0 \("):
            game.answer.format(action)


@pytest.mark.parametrize("game_id", game_ids())
def test_other_data_than_states_are_rejected_in_one_line(game_id: str) -> None:
    game = make_game(game_id)
    good = game.to_json(game.start(np.random.default_rng(0)))
    for text in ("", "null", "[]", "{}", "x", good[:-1], good + good, "{" * 10_000):
        with pytest.raises(StateError, match=f"invalid state of {game.name}") as caught:
            game.from_json(text)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400
    others: tuple[object, ...] = (float("nan"), {"board": object()}, [], None)
    for data in others:
        with pytest.raises(StateError, match=f"state of {game.name}"):
            game.from_data(data)


def values(field: FieldInfo) -> st.SearchStrategy[Any]:
    """Draw values from the range of a config field."""
    bounds = {type(bound): getattr(bound, "ge", getattr(bound, "le", None)) for bound in field.metadata}
    low, high, kind = bounds.get(Ge), bounds.get(Le), field.annotation
    if kind is bool:
        return st.booleans()
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is Literal:
        return st.lists(st.sampled_from(get_args(get_args(kind)[0])), min_size=1, unique=True).map(tuple)
    if low is not None and high is not None:
        return st.integers(low, high) if kind is int else st.floats(low, high)
    return st.just(field.default)


@pytest.mark.parametrize("game_id", [*game_ids(), *(f"qa/{name}" for name in ("swap", "lightsout", "sokoban"))])
@settings(max_examples=4)
@given(data=st.data())
def test_every_accepted_config_starts_on_every_seed(game_id: str, data: st.DataObject) -> None:
    fields = game_class(game_id).Config.model_fields if "/" not in game_id else QuestionsConfig.model_fields
    ranges = {name: values(field) for name, field in fields.items() if name not in ("game", "tiles", "size")}
    chosen = data.draw(st.lists(st.sampled_from(sorted(ranges)), max_size=5, unique=True))
    level = st.integers(1, 5)
    try:
        game = make_game(
            game_id, data.draw(level), data.draw(level), size=2048, **{name: data.draw(ranges[name]) for name in chosen}
        )
    except UsageError:
        return
    game.start(np.random.default_rng(data.draw(st.integers(0, 2**32))))


@pytest.mark.parametrize(("base", "method"), [(LightsOut, "deal"), (Blocks, "generate")])
def test_states_are_generated_until_an_attempt_succeeds(base: Any, method: str) -> None:
    failures: Iterator[None] = iter(())

    def generate(self: Any, rng: np.random.Generator) -> Any:
        return next(failures, getattr(base, method)(self, rng))

    game = type("Reluctant", (base,), {method: generate, "attempts": 3})()
    for count in range(3):
        failures = iter([None] * count)
        game.require_valid(game.start(np.random.default_rng(0)))
    failures = iter([None] * 3)
    with pytest.raises(GenerationError, match="was found in 3 attempts"):
        game.start(np.random.default_rng(0))
