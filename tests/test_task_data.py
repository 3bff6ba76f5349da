"""Tasks on user data: a small task, tables of good rows, and all kinds of bad rows."""

import io
import json
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import vlmgym
from vlmgym.cli.main import main
from vlmgym.errors import ParseError, StateError, UsageError
from vlmgym.sandbox import registry
from vlmgym.sandbox.answers.line import Line
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.config import config_field
from vlmgym.sandbox.core.data_task import DataTask, DataTaskConfig
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.task import TaskState
from vlmgym.sandbox.data.rows import BadRow, number_of, text_of

pytestmark = pytest.mark.usefixtures("own_cache")
COLOURS = {"red": (200, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 200)}


class ColourConfig(DataTaskConfig):
    names: int = config_field("reasoning", [1, 2, 3, 4, 5], "Colours that may be asked for.", ge=1, le=5)


@dataclass(frozen=True, kw_only=True)
class ColourState(TaskState):
    colour: str
    latitude: float = 0.0


class Word(Line):
    """A word, in lower case."""

    def parse(self, text):
        if not text.strip().isalpha():
            raise ParseError("an answer is one word")
        return text.strip().lower()


class Colour(DataTask[ColourState, str]):
    """A task that asks for the colour of an image."""

    name = "colour"
    Config = ColourConfig
    State = ColourState
    columns: ClassVar = {"image": ("image", "img"), "colour": ("colour", "label"), "latitude": ("lat",)}
    optional_fields = frozenset({"latitude"})
    image_fields = ("image",)
    answer = Word("colour", lambda config: (tuple(COLOURS), 1), longest=10)

    def generate(self, rng):
        return ColourState(colour=str(rng.choice(list(COLOURS)[: self.config.names])))

    def from_row(self, fields):
        colour = text_of(fields, "colour")
        if colour not in COLOURS:
            raise BadRow(f"the colour {colour!r} is not known")
        latitude = 0.0 if fields["latitude"] is None else number_of(fields, "latitude", -90, 90)
        return ColourState(colour=colour, latitude=latitude)

    def paint(self, state):
        return [np.full((self.config.size, self.config.size, 3), COLOURS[state.colour], np.uint8)]

    def solution(self, state):
        return state.colour

    def score(self, state, action):
        return float(action == state.colour), {}

    def describe(self, state):
        return state.colour

    def prompt(self, state):
        form = response_format.INSTRUCTIONS_V1.format(perception="the colour", answer="colour")
        return f"Which colour is it, for instance red? {form}"


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(registry._registered, "colour-v0", Colour)


def encoded(colour):
    buffer = io.BytesIO()
    Image.new("RGB", (30, 20), COLOURS.get(colour, (9, 9, 9))).save(buffer, "PNG")
    return buffer.getvalue()


def rows_in(folder, count=12, **changed):
    """Write a table of good rows, with some rows changed; return its path."""
    rows = [{"img": f"{colour}.png", "label": colour} for colour in (list(COLOURS) * count)[:count]]
    for colour in COLOURS:
        (folder / f"{colour}.png").write_bytes(encoded(colour))
    for number, change in changed.items():
        rows[int(number.removeprefix("row"))].update(change)
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def colour(data, **settings):
    return Colour(ColourConfig.at(data=data, size=64, **settings))


def start(game, seed):
    return game.start_at(seed, np.random.default_rng(seed))


# Rows and seeds -------------------------------------------------------------------------------------------------------


@given(first=st.integers(0, 10**6), count=st.integers(1, 20), order=st.sampled_from(["shuffled", "rows"]))
def test_consecutive_seeds_visit_every_row_once(tmp_path_factory, first, count, order):
    game = colour(rows_in(tmp_path_factory.mktemp("data"), count), order=order)
    indices = [start(game, seed).row.index for seed in range(first, first + count)]
    assert sorted(indices) == list(range(count))
    if order == "rows":
        assert indices == [seed % count for seed in range(first, first + count)]


def test_the_state_has_the_row_but_not_the_image(tmp_path):
    data = rows_in(tmp_path)
    game = colour(data, order="rows")
    state = start(game, 4)
    assert (state.row.data, state.row.index, state.colour, state.skipped) == (data, 4, "green", ())
    assert len(game.to_json(state)) < 300
    assert game.from_json(game.to_json(state)) == state
    (image,) = game.images(state)
    assert tuple(image[32, 32]) == COLOURS["green"]
    assert Episode(game, 4).respond("<answer>green</answer>").game == 1.0


# Checks of states -----------------------------------------------------------------------------------------------------


def test_changed_rows_and_images_are_not_drawn(tmp_path):
    data = rows_in(tmp_path)
    state = start(colour(data, order="rows"), 3)

    def drawn_anew():
        return colour(data).images(state)

    (tmp_path / "red.png").write_bytes(encoded("blue"))
    with pytest.raises(StateError, match=r"row 3 of .* has changed"):
        drawn_anew()
    (tmp_path / "red.png").unlink()
    with pytest.raises(StateError, match=r"row 3 of .* no image 'red\.png'"):
        drawn_anew()
    (tmp_path / "red.png").write_bytes(encoded("red"))
    assert tuple(drawn_anew()[0][32, 32]) == COLOURS["red"]
    rows_in(tmp_path, row3={"label": "blue"})
    with pytest.raises(StateError, match="has changed since"):
        drawn_anew()
    rows_in(tmp_path, 3)
    with pytest.raises(StateError, match="no longer exists"):
        drawn_anew()


def test_states_of_other_data_are_rejected(tmp_path):
    game = colour(rows_in(tmp_path))
    state = start(game, 0)
    for other in (Colour(), colour(str(tmp_path / "other.jsonl"))):
        for read in (other.row_images, lambda state, game=other: game.from_json(game.to_json(state))):
            with pytest.raises(StateError, match=r"^invalid state of colour: the state has data="):
                read(state)
    with pytest.raises(StateError, match="equal to 0"):
        game.from_json(game.to_json(replace(state, row=replace(state.row, index=-1))))
    with pytest.raises(StateError, match="no data row"):
        Colour().row_images(start(Colour(), 0))


# Bad rows -------------------------------------------------------------------------------------------------------------


BAD = {
    "label": ({"label": "mauve"}, "'mauve' is not known"),
    "latitude": ({"lat": 95}, "latitude must be between -90 and 90, got 95"),
    "text": ({"label": "\ud800 what"}, "colour is not valid Unicode"),
    "image": ({"img": "../outside.png"}, "outside the folder"),
    "contents of an image": ({"img": "rows.jsonl"}, "none of the formats"),
}


def with_a_bad_row(tmp_path, change):
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "outside.png").write_bytes(encoded("red"))
    return rows_in(folder, 6, row3=change)


@pytest.mark.parametrize(("change", "why"), BAD.values(), ids=BAD)
def test_a_bad_row_is_skipped_or_fails(tmp_path, change, why):
    data = with_a_bad_row(tmp_path, change)
    skipping, failing = colour(data, order="rows"), colour(data, order="rows", bad_rows="fail")
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
    data = rows_in(tmp_path, 4, **{f"row{number}": {"label": "mauve"} for number in range(4)})
    with pytest.raises(UsageError, match=r"no good row .* 4 consecutive ones.* row 2: .*'mauve'"):
        start(colour(data, order="rows"), 3)


def test_data_check_finds_repeated_ids(tmp_path, registered, capsys):
    rows = {f"row{number}": {"id": number} for number in range(12)}
    data = rows_in(tmp_path, 12, **{**rows, "row5": {"id": 2}, "row8": {"id": 2}, "row9": {}, "row10": {}})
    assert start(colour(data, order="rows"), 5).skipped == ()
    with pytest.raises(SystemExit):
        main(["data", "check", "colour", "--config", f"data={data}"])
    assert capsys.readouterr().out.splitlines() == [
        "row 5: its id '2' is also the id of row 2",
        "row 8: its id '2' is also the id of row 2",
        "12 of 12 rows checked: 10 good, 2 bad",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["data", "check", "colour", "--config", f"data={data}", "columns=id=nothing"])
    assert ended.value.code == 2
    main(["data", "check", "colour", "--config", f"data={data}", "columns=id="])


# Columns --------------------------------------------------------------------------------------------------------------


def test_columns_are_found_or_mapped(tmp_path):
    (tmp_path / "red.png").write_bytes(encoded("red"))
    path = tmp_path / "rows.jsonl"
    path.write_text(
        json.dumps({"file": "x", "label": "green", "deep": {"images": ["no.png", "red.png"]}, "answer": "red"})
    )
    with pytest.raises(UsageError, match=r"no column for image .* file, label"):
        start(colour(str(path)), 0)
    for columns in (["image=deep.images.1", "colour=answer"], "image=deep.images.1,colour=answer"):
        assert start(colour(str(path), columns=columns), 0).colour == "red"
    for columns, why in (
        (("image=nothing",), "no column 'nothing' for image"),
        (("photo=file",), "a field of id, image"),
        (("image",), "FIELD=COLUMN"),
    ):
        with pytest.raises(UsageError, match=why):
            start(colour(str(path), columns=columns), 0)
    with pytest.raises(UsageError, match="no image"):
        start(colour(str(path), columns=("image=deep.nothing",), bad_rows="fail"), 0)


@pytest.mark.parametrize(("column", "truth"), [("tags.1", "car"), ("boxes.name", "bus"), ("tags.name", None)])
def test_columns_reach_into_lists_and_objects(tmp_path, column, truth):
    row = {"image": "a.png", "question": "What?", "tags": ["cat", "car"], "thing": {"name": "dog"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | {"boxes": [{"name": "bus"}, {"name": "van"}]}))
    (tmp_path / "a.png").write_bytes(encoded("red"))
    task = vlmgym.make_game("vqa", data=str(tmp_path / "rows.jsonl"), columns=f"answer={column}", bad_rows="fail")
    if truth is None:
        with pytest.raises(UsageError, match="answer is empty"):
            start(task, 0)
    else:
        assert task.solution(start(task, 0)) == truth
