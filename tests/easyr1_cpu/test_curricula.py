"""Curricula in configurations: schedules, data settings, and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.easyr1_cpu.test_configurations import config_of
from vlmgym.curriculum import Curriculum
from vlmgym.curriculum.file import builtin_names
from vlmgym.errors import UsageError
from vlmgym.training.easyr1.config import preflight
from vlmgym.training.easyr1.settings import Section


@pytest.mark.parametrize("name", builtin_names())
def test_builtin_curricula_on_the_command_line(qwen3: Path, name: str) -> None:
    settings = [f"vlmgym.curriculum={name}", f"worker.actor.model.model_path={qwen3}"]
    config = config_of("rl_swap", settings=settings)
    assert Section.read(config.vlmgym).make_curriculum() == Curriculum.read(Path(name))
    problems, facts = preflight(config, machine=False)
    assert problems == []
    assert any("schedule of the curriculum" in fact for fact in facts)
    assert any("score of a single response" in fact for fact in facts) == (name == "2048")


def test_games_and_curricula_on_the_command_line_replace_each_other() -> None:
    config = config_of("rl_geospot", settings=["vlmgym.curriculum=2048"])
    assert Section.read(config.vlmgym).make_curriculum() == Curriculum.read(Path("2048"))
    config = config_of("rl_geospot", settings=["vlmgym.games=[{game: swap}]"])
    assert [game.name for game in Section.read(config.vlmgym).make_curriculum().games] == ["swap"]
    config = config_of("rl_geospot", settings=["vlmgym={games: [{game: swap}], curriculum: three-games}"])
    with pytest.raises(UsageError, match="games or curriculum must be set, but not both"):
        Section.read(config.vlmgym)
