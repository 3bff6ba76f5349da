"""Config fields as `vlmgym games` lists them."""

from __future__ import annotations

from typing import Literal

import pytest

from vlmgym.cli.eval import evaluate_script
from vlmgym.cli.games import options_of
from vlmgym.cli.main import main
from vlmgym.sandbox.core.config import GameConfig, config_field, setting
from vlmgym.sandbox.questions import QuestionsConfig
from vlmgym.sandbox.registry import game_class, game_ids


class LampsConfig(GameConfig):
    """Config of a custom game."""

    lamps: int = config_field("reasoning", 5, "Number of lamps.", ge=1)
    lit: Literal["on", "off"] | None = config_field("perception", None, "State of all lamps.")
    dim: float = config_field("perception", [0.1, 0.2, 0.5, 0.4, 0.5], "Darkness.", ge=0, le=1)
    hint: bool = setting(False, "Show a hint.")


def test_fields_are_listed_by_kind_with_levels_and_accepted_values() -> None:
    listed = [(one.name, one.kind, one.default, " ".join(one.levels), one.accepted) for one in options_of(LampsConfig)]
    assert listed == [
        ("size", "perceptual", "640", "", "integer 64 to 2048"),
        ("lit", "perceptual", "null", "", "on, off or null"),
        ("dim", "perceptual", "0.5", "0.1 0.2 0.5 0.4 0.5", "number 0 to 1"),
        ("lamps", "reasoning", "5", "", "integer from 1"),
        ("prompt", "setting", "null", "", "text or null"),
        ("strict", "setting", "false", "", "true, false"),
        ("hint", "setting", "false", "", "true, false"),
    ]


def test_questions_about_a_game_list_the_levels_that_apply() -> None:
    assert [one.name for one in options_of(QuestionsConfig) if one.levels] == ["game_perception", "game_reasoning"]


@pytest.mark.parametrize("game", [game_class(game_id).name for game_id in game_ids()])
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
