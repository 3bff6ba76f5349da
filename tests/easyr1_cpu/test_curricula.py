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


def test_check_prints_the_schedule_of_a_curriculum(qwen3: Path) -> None:
    config = config_of("ppo_geospot", settings=["vlmgym.curriculum=geospot-vlm-gym", "trainer.max_steps=5"])
    config.worker.actor.model.model_path = config.worker.critic.model.model_path = str(qwen3)
    problems, (_, title, _, *lines) = preflight(config, machine=False)
    assert problems == []
    assert "1,024 states per step" in title
    assert [line.split()[1:3] for line in lines[:5]] == [
        [stage, "1"] for stage in ("country_coarse", "country", "region", "city", "full")
    ]
    assert len([line for line in lines if line.startswith("warning: ")]) == 4


def test_data_settings_apply_to_all_stages(tmp_path: Path) -> None:
    data = tmp_path / "places.csv"
    settings = [f"vlmgym.overrides.data={data}", "vlmgym.overrides.columns=image=photo,country=land"]
    section = Section.read(config_of("rl_geospot", settings=settings).vlmgym)
    for game in section.make_curriculum().games:
        assert (game.config.data, game.config.columns) == (str(data), ("image=photo", "country=land"))
    (game,) = Section.read(config_of("rl_nlvr2", settings=settings[:1]).vlmgym).make_curriculum().games
    assert game.config.data == str(data)
    with pytest.raises(UsageError, match="no game of this curriculum takes data"):
        Section.read(config_of("rl_2048", settings=settings[:1]).vlmgym).make_curriculum()
