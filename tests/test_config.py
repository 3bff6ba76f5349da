"""Difficulty levels and config fields, and how `vlmgym games` lists them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vlmgym import game_ids, make_game
from vlmgym.cli.eval import evaluate_script
from vlmgym.cli.games import options_of
from vlmgym.cli.main import main
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.config import DIFFICULTIES, parse_config_fields
from vlmgym.sandbox.core.prompt import turn_prompt
from vlmgym.sandbox.games.game2048 import Config2048
from vlmgym.sandbox.questions import QuestionsConfig
from vlmgym.sandbox.registry import game_class


def test_every_config_field_has_a_description() -> None:
    for config in (game_class(game_id).Config for game_id in game_ids()):
        difficulties = config.field_difficulties()
        assert set(difficulties) <= set(config.model_fields)  # the other fields are settings
        assert set(difficulties.values()) == set(DIFFICULTIES)
        for field in config.model_fields.values():
            assert field.description
            assert field.description.endswith(".")


def test_a_config_field_overrides_its_level() -> None:
    config = Config2048.at(perception=5, reasoning=5, noise=0.0, rows=8)
    level = Config2048.at(perception=5, reasoning=5)
    assert config.model_dump() == {**level.model_dump(), "noise": 0.0, "rows": 8}


@pytest.mark.parametrize(("difficulty", "level"), [("perception", 0), ("reasoning", 6), ("reasoning", "3")])
def test_unknown_levels_are_rejected(difficulty: str, level: Any) -> None:
    with pytest.raises(UsageError, match=f"{difficulty} must be between 1"):
        Config2048.at(**{difficulty: level})


@pytest.mark.parametrize("overrides", [{"rows": 2}, {"columns": 4.0}, {"rows": True}, {"theme": "pink"}])
def test_invalid_values_are_rejected(overrides: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        make_game("2048", **overrides)
    message = str(caught.value)
    assert message.startswith(f"2048: {next(iter(overrides))}: ")
    assert "\n" not in message
    assert "got" in message


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


# Lists ----------------------------------------------------------------------------------------------------------------


def test_questions_about_a_game_list_the_levels_that_apply() -> None:
    assert [one.name for one in options_of(QuestionsConfig) if one.levels] == ["game_perception", "game_reasoning"]


@pytest.mark.parametrize("game", ["2048", "geospot", "rotation"])
def test_the_command_line_lists_every_field(
    game: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["games", game])
    listed = capsys.readouterr().out
    assert "Action" in listed
    with pytest.raises(SystemExit, match="0"):
        evaluate_script("eval.py", game, args=["--help"])
    helped = " ".join(capsys.readouterr().out.split())
    for one in options_of(game_class(game).Config):
        assert any(line.split()[:2] == [one.name, one.default] for line in listed.splitlines()), one.name
        _, _, kind = helped.partition(f"{one.kind}: ")
        assert one.name in kind.partition(";")[0].partition(".")[0].split(", "), one.name


def test_a_preset_is_listed_with_the_fields_of_its_game(capsys: pytest.CaptureFixture[str]) -> None:
    main(["games", "g1/shisensho-12x12"])
    listed = capsys.readouterr().out
    assert listed.startswith("g1/shisensho-12x12\n  shisensho: rows=12 columns=12 colours=6")
    assert " ".join(listed.split()).count("columns") > 1
    with pytest.raises(SystemExit, match="2"):
        main(["games", "g1/shisensho"])
    assert "unknown game 'g1/shisensho'" in (said := capsys.readouterr().err)
    assert "; the presets are g1/2048, " in said
