"""Curricula: files, mixtures, movement between stages, progress."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmgym import make_game
from vlmgym.curriculum import Curriculum, CurriculumFile, EntryProgress, Pick, Progress
from vlmgym.curriculum.file import builtin_names
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate

STAGES = ("one", "two", "three", "four")

BY_SUCCESS = CurriculumFile.model_validate(
    {
        "entries": [
            {
                "game": "2048",
                "by": "success",
                "measure": "score",
                "at_least": 8,
                "window": 3,
                "up": 0.6,
                "down": 0.2,
                "stages": [{"name": name, "overrides": {"rows": 3 + n}} for n, name in enumerate(STAGES)],
            },
            {"game": "swap", "weight": 3},
        ]
    }
)
CURRICULUM, AGAIN = Curriculum.from_file(BY_SUCCESS), Curriculum.from_file(BY_SUCCESS)
NEVER_DOWN = Curriculum.from_file(
    BY_SUCCESS.model_copy(update={"entries": (BY_SUCCESS.entries[0].model_copy(update={"down": None, "window": 1}),)})
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


@given(successes)
def test_what_is_picked_follows_from_seed_index_and_successes_alone(values: list[float]) -> None:
    assert play(CURRICULUM, CURRICULUM.begin(), values) == play(AGAIN, AGAIN.begin(), values)


@given(successes, st.integers(0, 60))
def test_a_progress_that_is_saved_and_read_goes_on_as_if_it_had_not_been(values: list[float], cut: int) -> None:
    whole = play(CURRICULUM, CURRICULUM.begin(), values)
    middle, before = play(CURRICULUM, CURRICULUM.begin(), values[:cut])
    read = Progress.model_validate_json(middle.model_dump_json())
    CURRICULUM.check(read)
    assert read == middle
    end, after = play(CURRICULUM, read, values[cut:], len(before))
    assert (end, before + after) == whole


@given(successes)
def test_stages_move_by_one_and_for_the_mean_over_the_whole_window(values: list[float]) -> None:
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


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=40))
def test_one_who_is_never_worse_is_never_behind_while_nobody_falls(pairs: list[tuple[float, float]]) -> None:
    worse, _ = play(NEVER_DOWN, NEVER_DOWN.begin(), [min(pair) for pair in pairs])
    better, _ = play(NEVER_DOWN, NEVER_DOWN.begin(), [max(pair) for pair in pairs])
    assert better.entries[0].stage >= worse.entries[0].stage


def test_success_leads_up_to_the_last_stage_and_failure_down_to_the_first() -> None:
    top, _ = play(CURRICULUM, CURRICULUM.begin(), [1.0] * 200)
    assert top.entries[0].stage == len(STAGES) - 1
    bottom, _ = play(CURRICULUM, top, [0.0] * 200)
    assert bottom.entries[0].stage == 0
    still, _ = play(CURRICULUM, bottom, [0.5] * 200)
    assert still.entries[0].stage == 0


def test_an_episode_of_a_stage_that_was_left_counts_but_moves_nothing() -> None:
    entry = CURRICULUM.entries[0]
    begun = EntryProgress(game="2048-v0", stage=1, episodes=10, recent=(1.0, 1.0))
    progress = Progress(entries=(begun, CURRICULUM.begin().entries[1]))
    after = CURRICULUM.after(progress, Pick(0, entry.stages[0].game, "one"), 1.0)
    assert after.entries[0] == begun.model_copy(update={"episodes": 11})


def test_the_success_of_an_episode_is_a_finite_number() -> None:
    pick = CURRICULUM.pick(CURRICULUM.begin(), 0, 0)
    with pytest.raises(UsageError, match="got nan"):
        CURRICULUM.after(CURRICULUM.begin(), pick, float("nan"))


def test_geospot_has_the_stages_of_its_source_at_their_episodes() -> None:
    curriculum = Curriculum.read(Path("geospot"))
    _, picks = play(curriculum, curriculum.begin(), [0.0] * 1001)
    assert [picks[n].game.config.stage for n in (0, 99, 100, 299, 300, 599, 600, 999, 1000)] == [
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
        5,
    ]
    assert picks[1000].stage == "full"


# Mixtures -------------------------------------------------------------------------------------------------------------


def test_a_mixture_keeps_its_weights() -> None:
    drawn = [CURRICULUM.entry_at(0, index) for index in range(4000)]
    assert 0.22 < drawn.count(0) / 4000 < 0.28  # 1 of 4; standard error 0.007
    assert drawn != [CURRICULUM.entry_at(1, index) for index in range(4000)]


def test_games_without_a_file_are_an_equal_mixture_without_stages() -> None:
    games = [make_game("2048"), make_game("swap")]
    curriculum = Curriculum.of(games)
    assert {curriculum.pick(curriculum.begin(), 0, index) for index in range(50)} == {
        Pick(0, games[0], None),
        Pick(1, games[1], None),
    }
    with pytest.raises(UsageError, match="at least one game"):
        Curriculum.of([])


def test_thousands_of_picks_take_less_than_a_second() -> None:
    progress = CURRICULUM.begin()
    began = time.process_time()
    for index in range(3000):
        progress = CURRICULUM.after(progress, CURRICULUM.pick(progress, 0, index), 1.0)
    assert time.process_time() - began < 1


# Success --------------------------------------------------------------------------------------------------------------


def test_what_success_is_the_file_says() -> None:
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
def test_curricula_that_come_along_can_be_read(name: str) -> None:
    curriculum = Curriculum.read(Path(name))
    assert curriculum.file is not None
    assert Curriculum.from_file(CurriculumFile.model_validate_json(curriculum.file.model_dump_json())) == curriculum


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2048", "three-games"])
def test_who_plays_well_leaves_every_stage_and_who_guesses_none_of_shisensho_and_swap(name: str) -> None:
    curriculum = Curriculum.read(Path(name))
    for number, entry in enumerate(curriculum.entries):
        for stage in entry.stages[:-1] if entry.begins is None else ():
            pick = curriculum.at(number, stage.name)
            turns = 100 if entry.measure == "score" else 20
            (good,) = evaluate(stage.game, "oracle", 1, max_turns=turns, workers=0)
            assert curriculum.success(pick, good.turns) >= entry.up, stage.name
            if entry.measure == "played":
                (poor,) = evaluate(stage.game, "random", 1, max_turns=turns, workers=0)
                assert curriculum.success(pick, poor.turns) <= entry.down, stage.name


ENTRY = '[[entries]]\ngame = "2048"\n'
SUCCESS = ENTRY + 'by = "success"\nstages = [{}, {}]\n'
PLAYED = SUCCESS + 'measure = "played"\nwindow = 5\n'
BAD_FILES = {
    "entries = " + "[" * 10_000: "is nested too deeply",
    "entries = [": "is not valid TOML: ",
    "max_concurrency = " + "9" * 5000: "is not valid TOML: ",
    "entries:\n  - game: swap": "is not valid TOML: ",
    "": ": entries is missing",
    "entries = []": ": entries is empty: add one with [[entries]]",
    "[[entry]]": ": unknown field 'entry'; the fields are max_concurrency, entries",
    "[[entries]]": ": entry 1: game is missing",
    '[entries]\ngame = "2048"': ": entries must be a list: start each item with [[entries]]",
    "entries = 3": ": entries must be a list: start each item with [[entries]]",
    "entries = [3]": ": entry 1: must be a table such as { name = value }, got 3",
    ENTRY + "overrides = 3": ": entry 1, overrides: must be a table such as { name = value }, got 3",
    ENTRY + "[entries.stages]": ": entry 1: stages must be a list: start each item with [[entries.stages]]",
    ENTRY + "wieght = 2": ": entry 1: unknown field 'wieght'; the fields are game, weight, ",
    ENTRY + "weight = 0": ": entry 1, weight: input should be greater than 0",
    ENTRY + "weight = inf": ": entry 1, weight: input should be a finite number",
    ENTRY + 'weight = "2"': ": entry 1, weight: input should be a valid number",
    ENTRY + "perception = 6": ": entry 1, perception: input should be less than or equal to 5",
    ENTRY + ENTRY + "overrides = { rows = 99 }": ": entry 2: 2048: rows: ",
    ENTRY + "overrides = { perception = 2 }": ": entry 1: perception is a field of the stage, not an override",
    ENTRY + "overrides = { cls = 2 }": ": entry 1: 2048: unknown config field 'cls'",
    '[[entries]]\ngame = "chess"': ": entry 1: unknown game 'chess'",
    ENTRY + "stages = [{ episodes = 5 }, { name = 3 }]": ": entry 1, stage 2, name: input should be a valid string",
    ENTRY + 'stages = [{ name = "a\\nb" }]': "entry 1, stage 1, name: a name must be one line",
    ENTRY + 'stages = [{ name = "" }]': "entry 1, stage 1, name: a name must be one line",
    '[[entries]]\ngame = "g1/shisensho-6x6"\nreasoning = 2': "is a preset without levels",
    ENTRY + "stages = [{ episodes = 5 }, { rows = 3 }]": ": entry 1, stage 2: unknown field 'rows'",
    ENTRY
    + "stages = [{ episodes = 5 }, { overrides = { row = 3 } }]": ": entry 1, stage 2: 2048: unknown config field",
    ENTRY + "stages = [{}, {}]": ": entry 1: every stage except the last",
    ENTRY + "stages = [{ episodes = 1 }, { episodes = 1 }]": ": entry 1: every stage except the last",
    ENTRY + "window = 5": ': entry 1: window needs by = "success"',
    ENTRY + "at_least = 5": ': entry 1: at_least needs by = "success"',
    ENTRY + 'by = "luck"': ": entry 1, by: input should be 'episode' or 'success'",
    SUCCESS: ': entry 1: by = "success" needs measure and window and up',
    SUCCESS + 'measure = "score"\nwindow = 5\nup = 1\ndown = 1': ": entry 1: down must be less than up",
    SUCCESS + 'measure = "luck"\nwindow = 5\nup = 1': ": entry 1, measure: input should be 'score', 'reward' or",
    PLAYED + "up = 70": ": entry 1: up must be above 0 and at most 1, because success is a share, got 70",
    PLAYED + "up = 0": ": entry 1: up must be above 0 and at most 1, because success is a share, got 0",
    PLAYED + "up = 1\ndown = -1": ": entry 1: down must be at least 0, because success is a share, got -1",
    PLAYED + "up = 1\nat_least = 90": ": entry 1: at_least must be above 0 and at most 1",
    SUCCESS + 'measure = "score"\nwindow = 5\nup = 70\nat_least = 8': ": entry 1: up must be above 0 and at most 1",
    SUCCESS.replace("}, {", "at_least = 8 }, {")
    + 'measure = "score"\nwindow = 5\nup = 1': ": entry 1: stage 2 has no at_least, but others have: give it to all",
    ENTRY + 'by = "success"\nmeasure = "score"\nwindow = 5\nup = 1': ': entry 1: by = "success" needs at least two',
    ENTRY + 'stages = [{ name = "a", episodes = 1 }, { name = "a" }]': ": 2048-v0 has two stages named 'a'",
    ENTRY + "perception = 1\n" + ENTRY: ": 2048-v0 is in two entries without stages: give each entry a stage",
}


def test_a_measure_without_known_bounds_may_have_any_limits(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(SUCCESS + 'measure = "reward"\nwindow = 5\nup = 70\ndown = -2', encoding="utf-8")
    entry = Curriculum.read(path).entries[0]
    assert (entry.up, entry.down) == (70, -2)


def test_a_mark_that_an_editor_puts_in_front_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(ENTRY, encoding="utf-8-sig")
    assert Curriculum.read(path).entries[0].stages[0].game == make_game("2048")


@pytest.mark.parametrize("text", BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        Curriculum.read(path)
    assert "my.toml" in str(caught.value)
    assert BAD_FILES[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere is neither a file nor .*2048, geospot, three-games"):
        Curriculum.read(Path("nowhere"))
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8"):
        Curriculum.read(tmp_path / "x.toml")
    with pytest.raises(UsageError, match="cannot read"):
        Curriculum.read(tmp_path)


@pytest.mark.parametrize(
    "progress",
    [
        Progress(entries=()),
        Progress(entries=(EntryProgress(game="swap-v0"), EntryProgress(game="2048-v0"))),
        Progress(entries=(EntryProgress(game="2048-v0", stage=4, episodes=90), EntryProgress(game="swap-v0"))),
        Progress(entries=(EntryProgress(game="2048-v0", episodes=9, recent=(1.0,) * 4), EntryProgress(game="swap-v0"))),
        Progress(entries=(EntryProgress(game="2048-v0"), EntryProgress(game="swap-v0", stage=1))),
    ],
)
def test_a_progress_of_another_curriculum_is_refused(progress: Progress) -> None:
    with pytest.raises(UsageError, match="the progress"):
        CURRICULUM.check(progress)


def test_the_documentation_shows_a_curriculum_and_a_program_that_work(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "curricula.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shown.toml").write_text(toml, encoding="utf-8")
    assert len(Curriculum.read(tmp_path / "shown.toml").games) == 6
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    known: dict[str, Any] = {}
    exec(program, known)
    assert known["restored"] == known["progress"]
    assert [episode.index for episode in known["episodes"]] == list(range(8))
