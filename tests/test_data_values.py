"""Typed values of rows, and saved tables."""

from datetime import date, datetime, time
from decimal import Decimal

import numpy as np
import pytest
from PIL import Image

from tests.colours import GREEN, RED, encoded
from vlmgym.errors import UsageError
from vlmgym.sandbox.data import save_table
from vlmgym.sandbox.data.images import decode, image_bytes
from vlmgym.sandbox.data.rows import BadRow, number_of, text_of, truth_of
from vlmgym.sandbox.data.tables import open_table

pytestmark = pytest.mark.usefixtures("own_cache")


# Values ---------------------------------------------------------------------------------------------------------------


def test_typed_values():
    row = {"a": " 48.5 ", "b": 7, "c": "", "d": None, "e": float("nan"), "f": "x", "g": True, "h": "-1", "i": "inf"}
    assert (number_of(row, "a"), number_of(row, "b"), text_of(row, "a"), text_of(row, "b")) == (48.5, 7.0, "48.5", "7")
    for name in "cde":
        with pytest.raises(BadRow, match=f"{name} is empty"):
            number_of(row, name)
    for name in "fgi":
        with pytest.raises(BadRow, match="must be a number"):
            number_of(row, name)
    with pytest.raises(BadRow, match="latitude must be between -90 and 90, got 95"):
        number_of({"latitude": "95"}, "latitude", -90, 90)
    for value, truth in ((True, True), ("False", False), ("TRUE", True), (0, False), (1.0, True)):
        assert truth_of({"x": value}, "x") is truth
    with pytest.raises(BadRow, match="unlabelled"):
        truth_of(row, "h")
    with pytest.raises(BadRow, match="must be true or false"):
        truth_of(row, "f")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * 20_001, "a has 20001 characters, more than 20000"),
        ("\ud800 what", r"a is not valid Unicode: '\\ud800 what'"),
        ("a\x00b", r"a contains the control character '\\x00'"),
        ("a\x1b[31mb", r"a contains the control character '\\x1b'"),
        ("a\x85b", r"a contains the control character '\\x85'"),
    ],
    ids=["long", "surrogate", "NUL", "escape", "C1"],
)
def test_invalid_text_is_a_bad_row(value, why):
    with pytest.raises(BadRow, match=why):
        text_of({"a": value}, "a")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2"), (-0.0, "0"), (2.5, "2.5"), (1e300, "1e+300"), (2, "2"), ("2.0", "2.0"), (True, "yes"),
        (False, "no"), (Decimal("3.50"), "3.50"), (Decimal("1E+2"), "100"), (date(2024, 5, 1), "2024-05-01"),
        (datetime(2024, 5, 1), "2024-05-01"), (datetime(2024, 5, 1, 9), "2024-05-01T09:00:00"), (time(9), "09:00:00"),
    ],
)  # fmt: skip
def test_values_become_text(value, text):
    assert text_of({"a": value}, "a") == text


# Saved tables --------------------------------------------------------------------------------------------------------


def saved_rows(data):
    table = open_table(data)
    return [table[index] for index in range(len(table))], table.folder


def test_dicts_are_saved_with_their_images(tmp_path):
    (tmp_path / "here.png").write_bytes(encoded(GREEN))
    rows = [
        {"image": Image.new("RGB", (4, 4), RED), "n": np.int64(3), "x": float("nan"), "deep": {"a": (1, None)}},
        {"image": encoded(RED), "n": 4, "path": str(tmp_path / "here.png")},
        {"image": {"bytes": encoded(GREEN), "path": "x"}, "path": "missing.png"},
        {"image": Image.new("CMYK", (4, 4))},
        {"image": Image.fromarray(np.full((4, 4), 1023, np.int32)), "price": Decimal("3.50"), "tags": []},
    ]
    data = save_table(rows, tmp_path / "new" / "saved", paths=["path"])
    found, folder = saved_rows(data)
    assert (found[0]["n"], found[0]["x"], found[0]["deep"]) == (3, None, {"a": [1, None]})
    colours = [decode(image_bytes(row["image"], folder)).getpixel((0, 0)) for row in found[:3]]
    assert colours == [RED, RED, GREEN]
    assert decode(image_bytes(found[1]["path"], folder)).getpixel((0, 0)) == GREEN
    assert found[2]["path"] == "missing.png"
    assert decode(image_bytes(found[4]["image"], folder)).getpixel((0, 0)) == (255, 255, 255)
    assert (found[4]["price"], found[4]["tags"]) == ("3.50", [])
    with pytest.raises(UsageError, match="already exists"):
        save_table(rows, tmp_path / "new" / "saved")


def test_data_frames_and_datasets_are_saved(tmp_path):
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    frame = pandas.DataFrame({"n": [1, 2], "when": pandas.to_datetime(["2020-01-01", None]), "s": ["a", None]})
    assert saved_rows(save_table(frame))[0] == [
        {"n": 1, "when": "2020-01-01", "s": "a"},
        {"n": 2, "when": None, "s": None},
    ]
    features = datasets.Features({"label": datasets.ClassLabel(names=["no", "yes"]), "image": datasets.Image()})
    jpeg = encoded(form="JPEG")
    dataset = datasets.Dataset.from_dict({"label": [1, -1], "image": [{"bytes": jpeg, "path": None}] * 2}, features)
    rows, folder = saved_rows(save_table(dataset))
    assert [row["label"] for row in rows] == ["yes", None]
    assert image_bytes(rows[0]["image"], folder) == jpeg  # not re-encoded


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ([], "no rows"), ("text", "got str"), (7, "got int"), ([1], "row 0 .* expected a dict"),
        ([{"a": 1}, {"a": object()}], "row 1 .* JSON"), ([{"a": "\ud800 what"}], "row 0 .* surrogates"),
        ([{"\ud800": {"b": 1}}], "row 0 .* surrogates"),
    ],
)  # fmt: skip
def test_invalid_tables_are_rejected_and_leave_no_files(tmp_path, table, why):
    with pytest.raises(UsageError, match=why):
        save_table(table, tmp_path / "saved")
    assert not [path for path in tmp_path.rglob("*") if "cache" not in str(path)]
