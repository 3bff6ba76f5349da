"""Curricula in use: training timetables, data settings, and stages by step in evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.curricula import schedule
from vlmgym.cli.main import main
from vlmgym.curriculum import Curriculum, CurriculumFile
from vlmgym.curriculum.timetable import describe, timetable
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate, read_run

DOCS = Path(__file__).parents[1] / "docs" / "curricula.md"


def curriculum_of(*entries: dict[str, Any]) -> Curriculum:
    return Curriculum.from_file(CurriculumFile.model_validate({"entries": entries}))


BY_EPISODE = {"game": "2048", "stages": [{"name": "small", "episodes": 12}, {"name": "large", "episodes": 40}, {}]}
BY_STEP = {"game": "swap", "by": "step", "weight": 3, "stages": [{"steps": 2}, {"steps": 5}, {}]}
BY_SUCCESS = {"game": "shisensho", "by": "success", "measure": "played", "window": 20, "up": 0.5}
BY_SUCCESS |= {"stages": [{"name": "a"}, {"name": "b"}]}


# Timetables -----------------------------------------------------------------------------------------------------------


def test_timetable_counts_the_steps_that_stages_take() -> None:
    """Simulate a run, counting the states of each stage and noting its first step; compare with the timetable."""
    curriculum = curriculum_of(BY_EPISODE)
    progress, first, states = curriculum.begin(), dict[str, int](), dict[str, int]()
    for step in range(6):
        for pick in (batch := curriculum.picks(progress, 0, range(step * 16, step * 16 + 16))).values():
            first.setdefault(str(pick.stage), step + 1)
            states[str(pick.stage)] = states.get(str(pick.stage), 0) + 1
            progress = curriculum.after(progress, pick, 0.0)
        assert len(batch) == 16
    times = timetable(curriculum, 16)
    assert {time.stage: time.first_step for time in times} == first == {"small": 1, "large": 1, "3": 4}
    assert [time.cells[3:] for time in times] == [("0.8", "12"), ("2.5", "40"), ("to the end", "to the end")]
    assert (states["small"], states["large"]) == (12, 40)


def test_timetable_of_a_mixture() -> None:
    cells = [time.cells for time in timetable(curriculum_of(BY_EPISODE, BY_STEP, {"game": "vqa"}, BY_SUCCESS), 60)]
    assert cells == [
        ("2048", "small", "1", "1.2", "12"),
        ("2048", "large", "2", "4", "40"),
        ("2048", "3", "6", "to the end", "to the end"),
        ("swap", "1", "1", "2", "60"),
        ("swap", "2", "3", "5", "150"),
        ("swap", "3", "8", "to the end", "to the end"),
        ("shisensho", "a", "1", "at least 2", "at least 20"),
        ("shisensho", "b", "by success", "to the end", "to the end"),
    ]


def test_warnings_about_stages() -> None:
    title, header, *lines = describe(curriculum_of(BY_EPISODE), 16, 3, 1)
    assert "16 states per step" in title
    assert header.split("  ")[0] == "game"
    assert lines[3:] == [
        "warning: stage 'small' of 2048 has fewer states (12) than a batch (16)",
        "warning: stage '3' of 2048 begins at step 4, but training ends after 3",
    ]
    assert len(describe(curriculum_of(BY_EPISODE), 12, 5, 1)) == 5
    assert describe(curriculum_of({"game": "2048"}), 16, 3, 1) == []


@pytest.mark.parametrize(
    ("entry", "turns", "warned"),
    [
        ({**BY_SUCCESS, "measure": "score"}, 1, True),
        ({**BY_SUCCESS, "measure": "score"}, 2, False),
        ({**BY_SUCCESS, "game": "vqa", "measure": "score"}, 1, False),
    ],
)
def test_warning_about_scores_of_single_responses(entry: dict[str, Any], turns: int, warned: bool) -> None:
    lines = describe(curriculum_of(entry), 8, 100, turns)
    assert any("advances by the score of a single response" in line for line in lines) == warned


def test_the_docs_show_the_schedules_of_all_builtin_curricula() -> None:
    assert f"\n\n{schedule()}\n\n" in DOCS.read_text(encoding="utf-8")


# Evaluation -----------------------------------------------------------------------------------------------------------


def test_stages_by_success_of_another_game_do_not_delay_stages_by_episode_or_step() -> None:
    """Stages by success depend on results that are up to `concurrency` episodes old; other stages do not."""
    small = {"overrides": {"size": 160}}
    entries = ({**BY_EPISODE, **small, "weight": 3}, {**BY_STEP, **small}, {**BY_SUCCESS, **small})
    episodes = evaluate(curriculum_of(*entries), "random", 30, max_turns=1, workers=0, concurrency=8)
    by_id: dict[str, list[Any]] = {}
    for episode in sorted(episodes, key=lambda episode: episode.index):
        by_id.setdefault(episode.game.id, []).append(episode)
    stages = [episode.stage for episode in by_id["2048-v0"]]
    assert stages == (["small"] * 12 + ["large"] * 40)[: len(stages)]
    for episode in by_id["swap-v0"]:
        assert episode.stage == ("1" if episode.index < 2 else "2" if episode.index < 7 else "3")


def test_resumed_evaluation_has_the_stages_of_an_uninterrupted_one(tmp_path: Path) -> None:
    path, folder = tmp_path / "my.toml", tmp_path / "run"
    path.write_text(
        '[[entries]]\ngame = "2048"\noverrides = { size = 64 }\nby = "step"\n'
        "stages = [{ steps = 3 }, { steps = 4 }, {}]\n"
        '[[entries]]\ngame = "vqa"\noverrides = { size = 64 }\nstages = [{ episodes = 2 }, {}]\n'
    )
    args = ["eval", "--curriculum", str(path), "--episodes", "12", "--max-turns", "1", "--workers", "0"]
    args += ["--videos", "0", "--no-report"]
    main([*args, "--output-dir", str(folder)])

    def stages() -> list[tuple[int, str, str | None]]:
        return sorted((record.index, record.game.id, record.stage) for record in read_run(folder).episodes)

    whole, lines = stages(), (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    assert len({stage for _, _, stage in whole}) == 3
    (folder / "episodes.jsonl").write_bytes(b"".join(lines[:5]))
    main([*args, "--resume", str(folder)])
    assert stages() == whole


# Data -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of places with single-colour images and column names that need a mapping."""
    from PIL import Image

    rows = ["photo,y,x,land"]
    for number, (y, x, land) in enumerate([(48.86, 2.35, "FR"), (50.85, 4.35, "BE"), (52.52, 13.4, "DE")]):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{y},{x},{land}")
    path = tmp_path / "places.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


COLUMNS = "columns=image=photo,latitude=y,longitude=x,country=land"


def test_data_settings_on_the_command_line_apply_to_all_stages(table: Path, tmp_path: Path) -> None:
    args = ["eval", "--curriculum", "geospot-mixtrain", "--policy", "oracle", "--episodes", "3", "--workers", "0"]
    data = ["--config", f"data={table}", COLUMNS]
    main([*args, *data, "--output-dir", str(tmp_path / "run"), "--videos", "0", "--no-report"])
    run = read_run(tmp_path / "run")
    assert all(str(table) in json.dumps(record.turns[0].state) for record in run.episodes)
    assert [record.score for record in run.episodes] == [1.0] * 3
    assert {game.config["data"] for game in run.config.games} == {str(table)}


def test_data_settings_replace_those_of_the_file(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    stages = f'[{{ episodes = 1, overrides = {{ data = "{table}" }} }}, {{ overrides = {{ stage = 4 }} }}]'
    path.write_text(
        f'[[entries]]\ngame = "vlm-gym/geospot"\noverrides = {{ columns = ["image=photo"] }}\nstages = {stages}\n'
        '[[entries]]\ngame = "2048"\n'
    )
    curriculum = Curriculum.read(path, {"data": "other.csv", "columns": COLUMNS.partition("=")[2]})
    first, second = (stage.game.config for stage in curriculum.entries[0].stages)
    assert {config.data for config in (first, second)} == {"other.csv"}
    assert {len(config.columns) for config in (first, second)} == {4}
    assert (first.stage, second.stage) == (5, 4)
    with pytest.raises(UsageError, match="rows cannot be set for a curriculum"):
        Curriculum.read(path, {"rows": 5})
    with pytest.raises(UsageError, match="no game of this curriculum takes split"):
        Curriculum.read(Path("2048"), {"split": "train"})
