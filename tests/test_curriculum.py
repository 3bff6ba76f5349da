"""Curricula: files, mixtures, movement between stages, timetables and data settings; their evaluations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.playing import Model
from vlmgym.cli.main import main
from vlmgym.curriculum import Curriculum, CurriculumFile, EntryProgress, Pick, Progress
from vlmgym.curriculum.file import builtin_names
from vlmgym.curriculum.schedule import describe
from vlmgym.errors import UsageError
from vlmgym.evaluation import Budget, EpisodeRecord, Hooks, evaluate, read_run
from vlmgym.rollout.turn import TURN_LIMIT


def file_of(*entries: dict[str, Any]) -> CurriculumFile:
    return CurriculumFile.model_validate({"entries": entries})


def curriculum_of(*entries: dict[str, Any]) -> Curriculum:
    return Curriculum.from_file(file_of(*entries))


MOVES = {"by": "success", "measure": "score", "at_least": 8, "window": 3, "up": 0.6, "down": 0.2}
STAGES = [{"name": name, "overrides": {"rows": 3 + n}} for n, name in enumerate(("one", "two", "three", "four"))]
BY_SUCCESS = file_of({"game": "2048", **MOVES, "stages": STAGES}, {"game": "swap", "weight": 3})
CURRICULUM = Curriculum.from_file(BY_SUCCESS)
BY_EPISODE = [{"name": "one", "episodes": 5}, {"name": "two", "episodes": 7}, {"name": "three"}]
BY_STEP = [{"name": "one", "steps": 3}, {"name": "two"}]
MIXED = curriculum_of(
    {"game": "2048", "by": "episode", "stages": BY_EPISODE}, {"game": "swap", "by": "step", "stages": BY_STEP}
)
successes = st.lists(st.floats(0, 1), max_size=60)


def play(
    curriculum: Curriculum, progress: Progress, values: list[float], first: int = 0
) -> tuple[Progress, list[Pick]]:
    picks = []
    for index, success in enumerate(values, first):
        picks.append(curriculum.pick(progress, 7, index))
        progress = curriculum.after(progress, picks[-1], success)
    return progress, picks


# Movement -------------------------------------------------------------------------------------------------------------


@given(successes, st.integers(0, 60))
def test_saved_progress_continues_identically(values: list[float], cut: int) -> None:
    whole = play(CURRICULUM, CURRICULUM.begin(), values)
    middle, before = play(CURRICULUM, CURRICULUM.begin(), values[:cut])
    read = Progress.model_validate_json(middle.model_dump_json())
    CURRICULUM.check(read)
    assert read == middle
    end, after = play(CURRICULUM, read, values[cut:], len(before))
    assert (end, before + after) == whole


@given(successes)
def test_stages_move_by_one_on_the_mean_of_a_full_window(values: list[float]) -> None:
    progress = CURRICULUM.begin()
    for index, success in enumerate(values):
        after = CURRICULUM.after(progress, CURRICULUM.pick(progress, 7, index), success)
        moved = after.entries[0].stage - progress.entries[0].stage
        window = (*progress.entries[0].recent[-2:], success)
        if moved:
            assert len(window) == 3
            assert sum(window) / 3 >= 0.6 - 1e-9 if moved == 1 else moved == -1 and sum(window) / 3 <= 0.2 + 1e-9
            assert after.entries[0].recent == ()
        progress = after


PUBLISHED = (0, 99, 100, 299, 300, 599, 600, 999, 1000)
"""First and last episode or step of each published geospot stage."""


def test_geospot_of_vlm_gym_begins_stages_at_the_published_episodes() -> None:
    curriculum = Curriculum.read(Path("geospot-vlm-gym"))
    picks = curriculum.picks(curriculum.begin(), 0, range(1001))
    assert [picks[n].game.config.stage for n in PUBLISHED] == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert {picks[n].game.config.preset for n in PUBLISHED} == {"vlm-gym"}


def test_geospot_of_mixtrain_begins_stages_at_the_published_steps() -> None:
    curriculum = Curriculum.read(Path("geospot-mixtrain"))
    batches = [
        curriculum.picks(curriculum.at_step(curriculum.begin(), n), 0, range(n * 8, n * 8 + 8)) for n in PUBLISHED
    ]
    stages = [{pick.game.config.stage for pick in batch.values()} for batch in batches]
    assert stages == [{1}, {1}, {2}, {2}, {3}, {3}, {4}, {4}, {5}]
    assert {pick.game.config.preset for pick in batches[0].values()} == {"mixtrain"}


# Batches --------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 12), max_size=12))
def test_stages_by_episode_change_inside_a_batch(batches: list[int]) -> None:
    """Stages by episode do not depend on the batch size; stages by step change only between batches."""
    progress, picks, start = MIXED.begin(), list[Pick](), 0
    for step, size in enumerate(batches):
        assert progress.steps == step
        batch = MIXED.picks(progress, 7, range(start, start + size))
        by_step = {pick.stage for pick in batch.values() if pick.entry == 1}
        assert by_step <= {"one" if step < 3 else "two"}
        picks += batch.values()
        for pick in batch.values():
            progress = MIXED.after(progress, pick, 0.5)
        progress, start = MIXED.at_step(progress, step + 1), start + size
        MIXED.check(progress)
        assert Progress.model_validate_json(progress.model_dump_json()) == progress
    stages = [pick.stage for pick in picks if pick.entry == 0]
    assert stages == (["one"] * 5 + ["two"] * 7 + ["three"] * len(stages))[: len(stages)]


# Mixtures -------------------------------------------------------------------------------------------------------------


def test_mixture_follows_its_weights() -> None:
    drawn = [CURRICULUM.entry_at(0, index) for index in range(4000)]
    assert 0.22 < drawn.count(0) / 4000 < 0.28  # expected 1/4, standard error 0.007
    assert drawn != [CURRICULUM.entry_at(1, index) for index in range(4000)]


# Success --------------------------------------------------------------------------------------------------------------


def test_success_measures() -> None:
    (episode,) = evaluate("2048", "oracle", 1, max_turns=6, workers=0)
    (poor,) = evaluate("2048", lambda images, prompts: ["no idea"] * len(prompts), 1, max_turns=2, workers=0)

    def success(turns: Any, **fields: Any) -> float:
        entry = BY_SUCCESS.entries[0].model_copy(update={"at_least": None, **fields})
        curriculum = Curriculum.from_file(BY_SUCCESS.model_copy(update={"entries": (entry,)}))
        return curriculum.success(curriculum.at(0, "one"), turns)

    assert success(episode.turns, measure="score") == episode.score
    assert success(episode.turns, measure="score", at_least=episode.score) == 1.0
    assert success(episode.turns, measure="score", at_least=(episode.score or 0) + 1) == 0.0
    assert success(episode.turns, measure="reward") == pytest.approx((episode.score or 0) / 6)
    assert success(episode.turns, measure="played") == 1.0
    assert success([*episode.turns, *poor.turns], measure="played") == 0.75
    assert success([], measure="played") == 0.0
    assert CURRICULUM.success(CURRICULUM.at(0, "two"), episode.turns) == float((episode.score or 0) >= 8)
    with pytest.raises(UsageError, match="entry 1 of the curriculum has no stage 'five'"):
        CURRICULUM.at(0, "five")


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", builtin_names())
def test_builtin_curricula(name: str) -> None:
    curriculum = Curriculum.read(Path(name))
    assert curriculum.file is not None
    assert Curriculum.from_file(CurriculumFile.model_validate_json(curriculum.file.model_dump_json())) == curriculum


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2048", "three-games"])
def test_oracle_passes_every_stage_and_random_play_does_not(name: str) -> None:
    curriculum = Curriculum.read(Path(name))
    for number, entry in enumerate(curriculum.entries):
        for stage in entry.stages[:-1] if entry.begins is None else ():
            pick = curriculum.at(number, stage.name)
            schedule: Any = entry.file
            turns = 100 if schedule.measure == "score" else 20
            (good,) = evaluate(stage.game, "oracle", 1, max_turns=turns, workers=0)
            assert curriculum.success(pick, good.turns) >= schedule.up, stage.name
            if schedule.measure == "played":
                (poor,) = evaluate(stage.game, "random", 1, max_turns=turns, workers=0)
                assert curriculum.success(pick, poor.turns) <= schedule.down, stage.name


ENTRY = '[[entries]]\ngame = "2048"\n'
SUCCESS = ENTRY + 'by = "success"\nstages = [{}, {}]\n'
BAD_FILES = {
    "entries = [": "is not valid TOML: ",
    ENTRY + ENTRY + "overrides = { rows = 99 }": ": entry 2: 2048: rows: ",
    ENTRY + "overrides = { perception = 2 }": ": entry 1: perception is a field of the stage, not an override",
    ENTRY + "stages = [{}, {}]": ": entries.0: stage 1: every stage except the last must have episodes",
    SUCCESS + 'measure = "score"\nwindow = 5\nup = 1\ndown = 1': ": entries.0: down must be less than up",
    ENTRY + 'by = "success"\nmeasure = "score"\nwindow = 5\nup = 1': ': entries.0: by = "success" needs at least two',
    ENTRY + "perception = 1\n" + ENTRY: ": 2048-v0 is in two entries without stages: give each entry a stage",
}


@pytest.mark.parametrize("text", BAD_FILES, ids=range(len(BAD_FILES)))
def test_invalid_file_is_reported_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        Curriculum.read(path)
    assert "my.toml" in str(caught.value)
    assert BAD_FILES[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_or_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere is neither .*2048, geospot-mixtrain, geospot-vlm-gym, three-games"):
        Curriculum.read(Path("nowhere"))
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8"):
        Curriculum.read(tmp_path / "x.toml")


@pytest.mark.parametrize(
    "progress",
    [
        Progress(entries=(EntryProgress(game="swap-v0"), EntryProgress(game="2048-v0"))),
        Progress(entries=(EntryProgress(game="2048-v0", stage=4, episodes=90), EntryProgress(game="swap-v0"))),
    ],
)
def test_progress_of_another_curriculum(progress: Progress) -> None:
    with pytest.raises(UsageError, match="the progress"):
        CURRICULUM.check(progress)


BOARDS_BY_EPISODE = {
    "game": "2048",
    "stages": [{"name": "small", "episodes": 12}, {"name": "large", "episodes": 40}, {}],
}
TILES_BY_SUCCESS = {"game": "shisensho", "by": "success", "measure": "played", "window": 20, "up": 0.5}
TILES_BY_SUCCESS |= {"stages": [{"name": "a"}, {"name": "b"}]}


# Timetables of training -----------------------------------------------------------------------------------------------


def test_timetable_counts_the_steps_that_stages_take() -> None:
    """Simulate a run, counting the states of each stage and noting its first step; compare with the timetable."""
    curriculum = curriculum_of(BOARDS_BY_EPISODE)
    progress, first, states = curriculum.begin(), dict[str, int](), dict[str, int]()
    for step in range(6):
        for pick in curriculum.picks(progress, 0, range(step * 16, step * 16 + 16)).values():
            first.setdefault(str(pick.stage), step + 1)
            states[str(pick.stage)] = states.get(str(pick.stage), 0) + 1
            progress = curriculum.after(progress, pick, 0.0)
    assert first == {"small": 1, "large": 1, "3": 4}
    assert (states["small"], states["large"]) == (12, 40)
    assert describe(curriculum, 16, 3, 1) == [
        "schedule of the curriculum with 16 states per step:",
        "game  stage  first step  steps       states",
        "2048  small  1           0.8         12",
        "2048  large  1           2.5         40",
        "2048  3      4           to the end  to the end",
        "warning: stage 'small' of 2048 has fewer states (12) than a batch (16)",
        "warning: stage '3' of 2048 begins at step 4, but training ends after 3",
    ]
    assert len(describe(curriculum, 12, 5, 1)) == 5
    assert describe(curriculum_of({"game": "2048"}), 16, 3, 1) == []


# Data of users --------------------------------------------------------------------------------------------------------


def test_data_settings_replace_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(
        '[[entries]]\ngame = "vlm-gym/geospot"\noverrides = { columns = ["image=photo"] }\n'
        'stages = [{ episodes = 1, overrides = { data = "places.csv" } }, { overrides = { stage = 4 } }]\n'
        '[[entries]]\ngame = "2048"\n'
    )
    columns = "image=photo,latitude=y,longitude=x,country=land"
    curriculum = Curriculum.read(path, {"data": "other.csv", "columns": columns})
    first, second = (stage.game.config for stage in curriculum.entries[0].stages)
    assert {config.data for config in (first, second)} == {"other.csv"}
    assert {len(config.columns) for config in (first, second)} == {4}
    assert (first.stage, second.stage) == (5, 4)


AT_ONCE, EPISODES = 4, 40
SETTINGS: dict[str, Any] = {"max_turns": 3, "workers": 0, "seed": 5}
TOML = f"""
max_concurrency = {AT_ONCE}

[[entries]]
game = "2048"
weight = 3
overrides = {{ size = 96 }}
by = "success"
measure = "played"
at_least = 1.0
window = 3
up = 0.6
down = 0.3
stages = [
    {{ name = "small", overrides = {{ rows = 3, columns = 3 }} }},
    {{ name = "whole" }},
    {{ name = "large", overrides = {{ rows = 6 }} }},
]

[[entries]]
game = "swap"
overrides = {{ size = 128, rows = 5, columns = 5 }}
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("curricula") / "my.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def curriculum(path: Path) -> Curriculum:
    return Curriculum.read(path)


@pytest.fixture(scope="module")
def whole(curriculum: Curriculum) -> list[EpisodeRecord]:
    return evaluate(curriculum, "random", EPISODES, **SETTINGS)


def facts(records: Iterable[EpisodeRecord]) -> list[Any]:
    """Return the fields of records that are the same in all runs."""
    responses = [[turn.response for turn in record.turns] for record in records]
    return [(r.index, r.seed, r.game, r.stage, response, r.score) for r, response in zip(records, responses)]


def test_stages_follow_from_earlier_results(curriculum: Curriculum, whole: list[EpisodeRecord]) -> None:
    assert [record.index for record in whole] == list(range(EPISODES))
    assert [record.seed for record in whole] == list(range(5, 5 + EPISODES))
    assert {record.stage for record in whole if record.game.id == "2048-v0"} == {"small", "whole", "large"}
    assert {record.stage for record in whole if record.game.id == "swap-v0"} == {None}
    for record in whole:
        progress = curriculum.begin()
        for before in whole[: max(0, record.index - AT_ONCE + 1)]:
            pick = curriculum.at(curriculum.entry_at(5, before.index), before.stage)
            progress = curriculum.after(progress, pick, curriculum.success(pick, before.turns))
        pick = curriculum.pick(progress, 5, record.index)
        assert (record.stage, record.game.game()) == (pick.stage, pick.game)


@pytest.mark.parametrize(("concurrency", "order"), [(1, 0), (3, 1), (64, 2)])
def test_stages_do_not_depend_on_concurrency_or_order(
    curriculum: Curriculum, whole: list[EpisodeRecord], concurrency: int, order: int
) -> None:
    model = Model(order=order)
    again = evaluate(curriculum, model, EPISODES, **SETTINGS, concurrency=concurrency)
    assert facts(again) == facts(whole)
    assert model.most == min(concurrency, AT_ONCE)


@pytest.mark.parametrize("cut", [1, 17])
def test_resumed_run_reaches_the_same_stages(curriculum: Curriculum, whole: list[EpisodeRecord], cut: int) -> None:
    # As if some episodes had still been running.
    earlier = whole[:cut] + [r for r in whole[cut + 1 : cut + AT_ONCE] if r.index % 2]
    assert facts(evaluate(curriculum, Model(), EPISODES, **SETTINGS, resume=earlier)) == facts(whole)


def test_failed_episode_blocks_later_stages_until_resumed(curriculum: Curriculum, whole: list[EpisodeRecord]) -> None:
    reasons: list[str] = []
    model = Model([(game, 5 + 9, 0) for game in ("2048", "swap")])
    part = evaluate(curriculum, model, EPISODES, **SETTINGS, hooks=Hooks(on_stop=reasons.append))
    assert reasons == ["episode 9 has no result, so later stages are unknown"]
    assert max(seed for _, seed, _ in model.requested) == 5 + 9 + AT_ONCE - 1
    assert facts(part[:9]) == facts(whole[:9])
    assert part[9].status == "error"
    assert facts(evaluate(curriculum, Model(), EPISODES, **SETTINGS, resume=part)) == facts(whole)


def test_stages_by_episode_do_not_wait() -> None:
    entry = {"game": "2048", "overrides": {"size": 64}, "stages": [{"name": "a", "episodes": 7}, {"name": "b"}]}
    curriculum = Curriculum.from_file(CurriculumFile.model_validate({"entries": [entry]}))
    model = Model([("2048", 5, 0)])
    records = evaluate(curriculum, model, 12, **SETTINGS)
    assert [record.stage for record in records] == ["a"] * 7 + ["b"] * 5
    assert [record.status for record in records] == ["error"] + [TURN_LIMIT] * 11
    assert model.most == 12


def test_stopped_run_does_not_wait_for_results(curriculum: Curriculum, whole: list[EpisodeRecord]) -> None:
    reasons: list[str] = []
    budget = Budget(budget_tokens=50)
    stopped = evaluate(
        curriculum, Model(tokens=1), EPISODES, **SETTINGS, budget=budget, hooks=Hooks(on_stop=reasons.append)
    )
    assert reasons == ["the budget of 50 tokens is used up"]
    assert "stopped" in {record.status for record in stopped}
    assert facts(evaluate(curriculum, Model(), EPISODES, **SETTINGS, resume=stopped)) == facts(whole)


# The command ----------------------------------------------------------------------------------------------------------

COMMAND = ["eval", "--max-turns", "3", "--workers", "0", "--seed", "5", "--videos", "0", "--no-report"]


def run(path: Path, *args: str) -> None:
    main([*COMMAND, "--curriculum", str(path), *args])


def test_command_plays_and_resumes_a_curriculum(
    path: Path, whole: list[EpisodeRecord], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run(path, "--episodes", str(EPISODES), "--output-dir", str(folder))
    printed = capsys.readouterr()
    made = read_run(folder)
    assert facts(sorted(made.episodes, key=lambda record: record.index)) == facts(whole)
    assert made.config.game_ids == ("2048-v0", "swap-v0")
    assert len(made.config.games) == 4
    of_swap = sum(record.game.id == "swap-v0" for record in whole)
    assert made.config.curriculum is not None
    assert made.config.curriculum.episodes == {"2048-v0": EPISODES - of_swap, "swap-v0": of_swap}
    assert Curriculum.from_file(CurriculumFile.model_validate(made.config.curriculum.file)) == Curriculum.read(path)
    summary = made.folder.read_summary()
    assert summary is not None
    for name, stage in summary.games["2048-v0"].stages.items():
        scores = [record.score or 0.0 for record in whole if record.stage == name]
        assert stage.episodes == len(scores)
        assert stage.score_mean == pytest.approx(sum(scores) / len(scores))
        assert f"stage {name}" in printed.out
    assert summary.games["swap-v0"].stages == {}
    assert summary.games["swap-v0"].score_stderr is not None
    assert (summary.games["2048-v0"].score_stderr, summary.games["2048-v0"].score_ci) == (None, None)
    assert ", all stages together" in printed.out

    lines = made.folder.episodes.read_bytes().splitlines(keepends=True)
    made.folder.episodes.write_bytes(b"".join(lines[:11]) + lines[11][:100])  # as if the run had been killed
    made.folder.summary.unlink()
    run(path, "--episodes", str(EPISODES), "--resume", str(folder))
    assert facts(sorted(read_run(folder).episodes, key=lambda record: record.index)) == facts(whole)


REFUSED: dict[tuple[str, ...], str] = {
    ("--games", "swap"): "--curriculum names the games: leave out games",
    ("--perception", "2"): "sets the difficulty of its games",
    ("--config", "rows=5"): "rows cannot be set for a curriculum",
    ("--config", "data=x.csv"): "no game of this curriculum takes data",
}


@pytest.mark.parametrize("args", REFUSED)
def test_options_that_contradict_a_curriculum(
    path: Path, tmp_path: Path, args: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(path, "--output-dir", str(tmp_path / "run"), *args)
    assert caught.value.code == 2
    assert REFUSED[args] in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_resume_needs_the_same_curriculum(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, other = str(tmp_path / "run"), tmp_path / "other.toml"
    run(path, "--episodes", "2", "--output-dir", folder)
    other.write_text(TOML.replace("up = 0.6", "up = 0.9"))
    for args, message in (
        (["--curriculum", str(other)], "curriculum.entries.0.up was 0.6 and is 0.9"),
        (["2048"], "it had a curriculum"),
    ):
        with pytest.raises(SystemExit) as caught:
            main([*COMMAND, *args, "--episodes", "2", "--resume", folder])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err


def test_compare_uses_episodes_at_equal_stages(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "poor.py").write_text("def policy(images, prompts):\n    return ['no idea'] * len(prompts)\n")
    policies = {"good": "oracle", "bad": str(tmp_path / "poor.py:policy")}
    for name, policy in policies.items():
        run(path, "--episodes", "24", "--policy", policy, "--output-dir", str(tmp_path / name))
    capsys.readouterr()
    main(["compare", str(tmp_path / "good"), str(tmp_path / "bad"), "--output-dir", str(tmp_path / "c"), "--no-page"])
    runs = [{record.seed: record for record in read_run(tmp_path / name).episodes} for name in policies]
    apart = sum(runs[0][seed].stage != runs[1][seed].stage for seed in runs[0])
    assert apart > 0
    assert f"{apart} at different stages" in capsys.readouterr().out
    main([*COMMAND, "2048", "--size", "64", "--episodes", "2", "--output-dir", str(tmp_path / "alone")])
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path / "good"), str(tmp_path / "alone"), "--output-dir", str(tmp_path / "d")])
    assert "; curriculum: {'max_concurrency': 4" in capsys.readouterr().err
