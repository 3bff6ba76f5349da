"""The options of games in words follow from their declarations: on the command line and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from vlmgym.cli.eval import evaluate_script
from vlmgym.cli.games import options_of, page
from vlmgym.cli.main import main
from vlmgym.sandbox.core.config import Dial, GameConfig, Levels, config_field, setting
from vlmgym.sandbox.registry import game_class, game_ids

PAGE = Path(__file__).resolve().parents[1] / "docs" / "config_fields.md"


class LampsConfig(GameConfig):
    """Configuration of a game of a user."""

    lamps: int = config_field("reasoning", 5, "How many.", ge=1)
    lit: Literal["on", "off"] | None = config_field("perception", None, "All of them.")
    dim: float = config_field("perception", 0.5, "How dark.", ge=0, le=1)
    hint: bool = setting(False, "Whether there is one.")

    levels: ClassVar[Mapping[Dial, Levels]] = {"perception": {level: {"dim": level / 10} for level in (1, 2, 4, 5)}}


def test_options_are_told_by_kind_with_their_levels_and_what_they_accept() -> None:
    told = [(one.name, one.kind, one.default, " ".join(one.levels), one.accepted) for one in options_of(LampsConfig)]
    assert told == [
        ("size", "perceptual", "640", "", "integer 64 to 2048"),
        ("lit", "perceptual", "null", "", "on, off or null"),
        ("dim", "perceptual", "0.5", "0.1 0.2 0.5 0.4 0.5", "number 0 to 1"),
        ("lamps", "reasoning", "5", "", "integer from 1"),
        ("prompt", "setting", "null", "", "text or null"),
        ("strict", "setting", "false", "", "true, false"),
        ("hint", "setting", "false", "", "true, false"),
    ]


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "write it anew: python -m vlmgym.cli.games > docs/config_fields.md"
    )


@pytest.mark.parametrize("game", [game_class(game_id).name for game_id in game_ids()])
def test_the_command_line_tells_every_config_field_of_a_game(
    game: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["games", game])
    told = capsys.readouterr().out
    assert "Action" in told
    with pytest.raises(SystemExit, match="0"):
        evaluate_script("eval.py", game, args=["--help"])
    helped = " ".join(capsys.readouterr().out.split())
    for one in options_of(game_class(game).Config):
        assert any(line.split()[:2] == [one.name, one.default] for line in told.splitlines()), one.name
        _, _, kind = helped.partition(f"{one.kind}: ")
        assert one.name in kind.partition(";")[0].partition(".")[0].split(", "), one.name


def test_a_published_setting_is_told_with_the_config_fields_of_its_game(capsys: pytest.CaptureFixture[str]) -> None:
    main(["games", "g1/shisensho-12x12"])
    told = capsys.readouterr().out
    assert told.startswith("g1/shisensho-12x12\n  shisensho: rows=12 columns=12 colours=6")
    assert " ".join(told.split()).count("columns") > 1
    with pytest.raises(SystemExit, match="2"):
        main(["games", "g1/shisensho"])
    assert "unknown game 'g1/shisensho'" in (said := capsys.readouterr().err)
    assert "; the presets are g1/2048, " in said


def test_an_unknown_game_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["games", "chess"])
    assert "unknown game 'chess'" in capsys.readouterr().err
