"""Difficulty levels and config fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from vlmgym import game_ids, make_game
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import DIFFICULTIES, GameConfig, config_field, parse_config_fields
from vlmgym.sandbox.core.prompt import turn_prompt
from vlmgym.sandbox.games.game2048.game import Config2048
from vlmgym.sandbox.registry import game_class


def configs() -> Iterator[type[GameConfig]]:
    for game_id in game_ids():
        yield game_class(game_id).Config


def test_every_config_field_has_a_description() -> None:
    for config in configs():
        difficulties = config.field_difficulties()
        assert set(difficulties) <= set(config.model_fields)  # the others are settings
        assert set(difficulties.values()) == set(DIFFICULTIES)
        for field in config.model_fields.values():
            assert field.description
            assert field.description.endswith(".")


def test_a_config_field_overrides_its_level() -> None:
    config = Config2048.at(perception=5, reasoning=5, noise=0.0, rows=8)
    level = Config2048.at(perception=5, reasoning=5)
    assert config.model_dump() == {**level.model_dump(), "noise": 0.0, "rows": 8}


def test_a_config_field_has_five_levels() -> None:
    with pytest.raises(TypeError, match=r"needs one value, or a list of 5 by level, got \[2, 3\]"):
        config_field("reasoning", [2, 3], "Rows.")


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
@pytest.mark.parametrize("level", [0, 6, -1, 2.5, "3", True, None])
def test_unknown_levels_are_rejected(difficulty: str, level: Any) -> None:
    with pytest.raises(UsageError, match=f"{difficulty} must be between 1"):
        Config2048.at(**{difficulty: level})


def test_unknown_fields_are_rejected() -> None:
    with pytest.raises(UsageError, match=r"unknown config field 'row'; the fields are .*columns.*rows"):
        make_game("2048", row=5)


@pytest.mark.parametrize(
    "overrides",
    [
        {"rows": 2}, {"columns": 4.0}, {"columns": "4"}, {"rows": True}, {"rows": None}, {"size": 2049},
        {"four_probability": 1.5}, {"four_probability": float("nan")}, {"coordinates": 1}, {"origin": 2},
        {"theme": "pink"}, {"similarity": 1.0}, {"noise": float("inf")}, {"clutter": -1},
    ],
)  # fmt: skip
def test_invalid_values_are_rejected(overrides: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        make_game("2048", **overrides)
    message = str(caught.value)
    assert message.startswith(f"2048: {next(iter(overrides))}: ")
    assert "\n" not in message
    assert "got" in message


def test_tiny_cells_are_rejected() -> None:
    with pytest.raises(UsageError, match="size=64 leaves"):
        make_game("2048", size=64, rows=8, columns=8)


def test_command_line_fields_are_parsed() -> None:
    assert parse_config_fields(["rows=5", "noise=0.5", "coordinates=true", "goal=null", "theme=dark"]) == {
        "rows": 5,
        "noise": 0.5,
        "coordinates": True,
        "goal": None,
        "theme": "dark",
    }
    python = parse_config_fields(["coordinates=True", "solvable=False", "goal=None", "theme=none", "word=TRUE"])
    assert python == {"coordinates": True, "solvable": False, "goal": None, "theme": "none", "word": "TRUE"}
    for settings, problem in ((["rows"], "NAME=VALUE"), (["=5"], "NAME=VALUE"), (["a=1", "a=2"], "twice")):
        with pytest.raises(UsageError, match=problem):
            parse_config_fields(settings)


def test_the_prompt_can_be_replaced() -> None:
    own = make_game("2048")
    other = make_game("2048", prompt="Play well.\n{prompt}")
    state = own.start(np.random.default_rng(0))
    assert other.instructions(state) == "Play well.\n" + own.prompt(state)
    assert turn_prompt(make_game("2048", prompt="Slide."), state, "no").startswith("Slide.\n\nYour last response")
    with pytest.raises(UsageError, match=r"prompt must contain .prompt."):
        make_game("vqa", prompt="Answer.")
