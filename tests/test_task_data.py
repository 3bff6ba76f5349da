"""Tasks on user data: tables of good rows, and all kinds of bad rows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.colours import encoded, write_rows
from vlmgym import make_game
from vlmgym.cli.main import main
from vlmgym.errors import StateError, UsageError
from vlmgym.sandbox.core.episode import Episode

pytestmark = pytest.mark.usefixtures("own_cache")
COLOURS = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200)}


def rows_in(folder, count=12, **changed):
    """Write a table of good rows, with some rows changed; return its path."""
    names = (list(COLOURS) * count)[:count]
    rows = [{"image": f"{name}.png", "question": "Which colour?", "answer": name} for name in names]
    for name, colour in COLOURS.items():
        (folder / f"{name}.png").write_bytes(encoded(colour))
    for number, change in changed.items():
        rows[int(number.removeprefix("row"))].update(change)
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def task(data, **settings):
    return make_game("vqa", data=data, size=64, **settings)


def start(game, seed):
    return game.start_at(seed, np.random.default_rng(seed))


# Rows and seeds -------------------------------------------------------------------------------------------------------


@given(first=st.integers(0, 10**6), count=st.integers(1, 20), order=st.sampled_from(["shuffled", "rows"]))
def test_consecutive_seeds_visit_every_row_once(tmp_path_factory, first, count, order):
    game = task(rows_in(tmp_path_factory.mktemp("data"), count), order=order)
    indices = [start(game, seed).row.index for seed in range(first, first + count)]
    assert sorted(indices) == list(range(count))
    if order == "rows":
        assert indices == [seed % count for seed in range(first, first + count)]


def test_the_state_has_the_row_but_not_the_image(tmp_path):
    data = rows_in(tmp_path)
    game = task(data, order="rows")
    state = start(game, 4)
    assert (state.row.data, state.row.index, state.answers, state.skipped) == (data, 4, ("green",), ())
    assert len(game.to_json(state)) < 400
    assert game.from_json(game.to_json(state)) == state
    (image,) = game.images(state)
    assert tuple(image[32, 32]) == COLOURS["green"]
    assert Episode(game, 4).respond("<answer>green</answer>").game == 1.0


# Checks of states -----------------------------------------------------------------------------------------------------


def test_changed_rows_and_images_are_not_drawn(tmp_path):
    data = rows_in(tmp_path)
    state = start(task(data, order="rows"), 3)

    def drawn_anew():
        return task(data).images(state)

    (tmp_path / "red.png").write_bytes(encoded(COLOURS["blue"]))
    with pytest.raises(StateError, match=r"row 3 of .* has changed"):
        drawn_anew()
    (tmp_path / "red.png").unlink()
    with pytest.raises(StateError, match=r"row 3 of .* no image 'red\.png'"):
        drawn_anew()
    (tmp_path / "red.png").write_bytes(encoded(COLOURS["red"]))
    assert tuple(drawn_anew()[0][32, 32]) == COLOURS["red"]
    rows_in(tmp_path, row3={"answer": "blue"})
    with pytest.raises(StateError, match="has changed since"):
        drawn_anew()
    rows_in(tmp_path, 3)
    with pytest.raises(StateError, match="no longer exists"):
        drawn_anew()


def test_states_of_other_data_are_rejected(tmp_path):
    game = task(rows_in(tmp_path))
    state = start(game, 0)
    other = task(str(tmp_path / "other.jsonl"))
    for read in (other.row_images, lambda state: other.from_json(other.to_json(state))):
        with pytest.raises(StateError, match=r"^invalid state of vqa: the state has data="):
            read(state)
    with pytest.raises(StateError, match="equal to 0"):
        game.from_json(game.to_json(replace(state, row=replace(state.row, index=-1))))


# Bad rows -------------------------------------------------------------------------------------------------------------


BAD = {
    "answer": ({"answer": None}, "answer is empty"),
    "text": ({"question": "\ud800 what"}, "question is not valid Unicode"),
    "image": ({"image": "../outside.png"}, "outside the folder"),
    "contents of an image": ({"image": "rows.jsonl"}, "none of the formats"),
}


@pytest.mark.parametrize(("change", "why"), BAD.values(), ids=BAD)
def test_a_bad_row_is_skipped_or_fails(tmp_path, change, why):
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "outside.png").write_bytes(encoded())
    data = rows_in(folder, 6, row3=change)
    skipping, failing = task(data, order="rows"), task(data, order="rows", bad_rows="fail")
    state = start(skipping, 3)
    assert state.row.index == 4
    assert [skipped.index for skipped in state.skipped] == [3]
    assert why in state.skipped[0].reason
    assert skipping.metrics(state, [{}]) == {"bad rows skipped": 1.0}
    assert start(skipping, 2).skipped == start(failing, 2).skipped == ()
    assert json.loads(skipping.to_json(state))["skipped"][0]["index"] == 3  # states list it, for records
    with pytest.raises(UsageError, match=r"row 3 of .*rows\.jsonl is bad: ") as error:
        start(failing, 3)
    assert why in str(error.value)


def test_data_without_a_good_row_are_an_error(tmp_path):
    data = rows_in(tmp_path, 4, **{f"row{number}": {"answer": None} for number in range(4)})
    with pytest.raises(UsageError, match=r"no good row .* 4 consecutive ones.* row 2: .*answer is empty"):
        start(task(data, order="rows"), 3)


def test_data_check_finds_repeated_ids(tmp_path, capsys):
    rows = {f"row{number}": {"id": number} for number in range(12)}
    data = rows_in(tmp_path, 12, **{**rows, "row5": {"id": 2}, "row8": {"id": 2}, "row9": {}, "row10": {}})
    assert start(task(data, order="rows"), 5).skipped == ()
    with pytest.raises(SystemExit):
        main(["data", "check", "vqa", "--config", f"data={data}"])
    assert capsys.readouterr().out.splitlines() == [
        "row 5: its id '2' is also the id of row 2",
        "row 8: its id '2' is also the id of row 2",
        "12 of 12 rows checked: 10 good, 2 bad",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["data", "check", "vqa", "--config", f"data={data}", "columns=id=nothing"])
    assert ended.value.code == 2
    main(["data", "check", "vqa", "--config", f"data={data}", "columns=id="])


# Columns --------------------------------------------------------------------------------------------------------------


def test_columns_are_found_or_mapped(tmp_path):
    (tmp_path / "red.png").write_bytes(encoded())
    path = tmp_path / "rows.jsonl"
    row = {"file": "x", "question": "Which colour?", "answer": "green", "truth": "red"}
    path.write_text(json.dumps(row | {"deep": {"images": ["no.png", "red.png"]}}))
    with pytest.raises(UsageError, match=r"no column for image .* file, question"):
        start(task(str(path)), 0)
    for columns in (["image=deep.images.1", "answer=truth"], "image=deep.images.1,answer=truth"):
        assert start(task(str(path), columns=columns), 0).answers == ("red",)
    for columns, why in (
        (("image=nothing",), "no column 'nothing' for image"),
        (("photo=file",), "a field of id, image"),
        (("image",), "FIELD=COLUMN"),
    ):
        with pytest.raises(UsageError, match=why):
            start(task(str(path), columns=columns), 0)
    with pytest.raises(UsageError, match="no image"):
        start(task(str(path), columns=("image=deep.nothing",), bad_rows="fail"), 0)


@pytest.mark.parametrize(("column", "truth"), [("tags.1", "car"), ("boxes.name", "bus"), ("tags.name", None)])
def test_columns_reach_into_lists_and_objects(tmp_path, column, truth):
    row = {"question": "What?", "tags": ["cat", "car"], "thing": {"name": "dog"}}
    data = write_rows(tmp_path, row | {"boxes": [{"name": "bus"}, {"name": "van"}]})
    game = task(data, columns=f"answer={column}", bad_rows="fail")
    if truth is None:
        with pytest.raises(UsageError, match="answer is empty"):
            start(game, 0)
    else:
        assert game.solution(start(game, 0)) == truth
