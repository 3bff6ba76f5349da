"""Tables: CSV, JSON, Parquet, folders and known layouts; their values; the Hub; archives."""

import json
import os
import struct
import subprocess
import sys
import zipfile
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.colours import GREEN, LABELS, RED, encoded
from tests.hub_server import serving_hub
from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.sandbox.data.images import decode, image_bytes
from vlmgym.sandbox.data.rows import BadRow, number_of, text_of, truth_of
from vlmgym.sandbox.data.tables import open_table
from vlmgym.sandbox.games.geospot import osv5m as osv5m_module
from vlmgym.sandbox.games.geospot.osv5m import unzip_images
from vlmgym.sandbox.games.nlvr2 import open_nlvr2

pytestmark = pytest.mark.usefixtures("own_cache")


# Lines, CSV and JSON --------------------------------------------------------------------------------------------------


def test_blank_lines_and_a_byte_order_mark_are_skipped(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n\n   \t\n{"a": 2}\n \r\n{"a": 3}')
    assert [row["a"] for row in open_table(str(path))] == [1, 2, 3]


def test_bad_csv_lines_are_bad_rows(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"a,b\n1,2\n1\n1,2,3\n\xff,2\n5,6\n")
    table = open_table(str(path))
    assert len(table) == 5
    assert [table[0], table[4]] == [{"a": "1", "b": "2"}, {"a": "5", "b": "6"}]
    for index, why in ((1, "1 values for 2 columns"), (2, "3 values"), (3, "a is not valid Unicode")):
        with pytest.raises(BadRow, match=why):
            text_of(table[index], "a")


def test_json_lines_and_arrays_are_equivalent(tmp_path):
    rows = [{"a": 1, "b": "ü"}, {"a": 2, "c": [1, {"d": None}]}]
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "array.json").write_text(json.dumps(rows, indent=2))
    for name in ("lines.json", "array.json"):
        table = open_table(str(tmp_path / name))
        assert [table[0], table[1]] == rows
        assert table.columns == ("a", "b", "c")


def test_bad_json_lines_are_bad_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n[1]\n' + "[" * 100_000 + '\n{"a": 2}\n')
    table = open_table(str(path))
    assert (len(table), table[0], table[4]) == (5, {"a": 1}, {"a": 2})
    for index, why in ((1, "not JSON"), (2, "expected a JSON object"), (3, "not JSON")):
        with pytest.raises(BadRow, match=why):
            table[index]


# Parquet and Arrow ----------------------------------------------------------------------------------------------------


def numbered(count, start=0):
    labels = pa.array([index % 2 for index in range(count - 1)] + [-1])
    return pa.table({"n": range(start, start + count), "label": labels}).replace_schema_metadata(LABELS)


def test_parquet_shards_and_class_names(tmp_path):
    pq.write_table(numbered(10), tmp_path / "train-00000-of-00002.parquet", row_group_size=3)
    pq.write_table(numbered(5, 10), tmp_path / "train-00001-of-00002.parquet", row_group_size=2)
    table = open_table(str(tmp_path), "train")
    assert [table[index]["n"] for index in range(len(table))] == list(range(15))
    assert list(table.values("n")) == list(range(15))
    assert [table[index]["label"] for index in (0, 1, 9)] == ["True", "False", None]


@pytest.mark.parametrize("kind", ["parquet", "saved"])
def test_class_names_at_any_depth(tmp_path, kind):
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["cat", "dog", "car"])
    columns = {
        "objects": {"category": datasets.Sequence(label), "main": label},
        "boxes": datasets.Sequence({"kind": label, "size": datasets.Value("int32")}),
        "groups": [[label]],
    }
    row = {
        "objects": {"category": [1, 2], "main": 1},
        "boxes": {"kind": [2, -1], "size": [7, 8]},
        "groups": [[0], [], [1, 2]],
    }
    dataset = datasets.Dataset.from_list([row], features=datasets.Features(columns))
    data = str(tmp_path / "rows")
    if kind == "parquet":
        dataset.to_parquet(data := f"{data}.parquet")
    else:
        dataset.save_to_disk(data)
    assert dict(open_table(data)[0]) == {
        "objects": {"category": ["dog", "car"], "main": "dog"},
        "boxes": {"kind": ["car", None], "size": [7, 8]},
        "groups": [["cat"], [], ["dog", "car"]],
    }


def test_damaged_parquet_and_different_columns_are_errors(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UsageError, match=r"cannot open .*a\.parquet: Parquet magic bytes not found"):
        open_table(str(tmp_path / "a.parquet"))
    pq.write_table(numbered(2), tmp_path / "a.parquet")
    pq.write_table(pa.table({"other": [1]}), tmp_path / "b.parquet")
    with pytest.raises(UsageError, match=r"cannot open .*a\.parquet: .*column"):
        open_table(str(tmp_path))


# Folders --------------------------------------------------------------------------------------------------------------


def test_class_folders(tmp_path):
    for name in ("cat/2.png", "cat/1.JPG", "dog/1.png", "dog/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(encoded())
    table = open_table(str(tmp_path))
    rows = [table[index] for index in range(len(table))]
    assert [row["image"] for row in rows] == ["cat/1.JPG", "cat/2.png", "dog/1.png"]
    assert [row["label"] for row in rows] == ["cat", "cat", "dog"]


def test_hugging_face_metadata_and_splits(tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "metadata.csv").write_text("file_name,text\n1.png,one\n")
    assert open_table(str(tmp_path), "test")[0] == {"file_name": "1.png", "text": "one", "image": "1.png"}


@pytest.mark.parametrize("place", ["", "data/"])
def test_files_of_a_split(tmp_path, place):
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        (tmp_path / f"{place}{split}.jsonl").write_text(json.dumps({"split": split}))
    assert open_table(str(tmp_path), "test")[0] == {"split": "test"}
    with pytest.raises(UsageError, match="no split 'validation'"):
        open_table(str(tmp_path), "validation")
    with pytest.raises(UsageError, match=r"several tables \(test.jsonl, train.jsonl\)"):
        open_table(str(tmp_path))
    with pytest.raises(UsageError, match=r"test\.jsonl .* no split 'train'"):
        open_table(str(tmp_path / f"{place}test.jsonl"), "train")


@pytest.mark.parametrize(
    ("data", "content", "why"),
    [
        ("a.csv", 'a,b\n"1,2\n', "odd number of double quotes"), ("a.csv", "", "is empty"),
        ("a.csv", "a,a\n", "two columns with the same name"), ("a.json", "", "JSON"), ("a.json", "[1, 2]", "JSON"),
        ("a.json", "[{", "JSON"), ("a.txt", "", "known kind of file"), (".", None, "neither a table"),
        ("nothing.csv", None, "no file or folder"), ("a/b/c", None, "not a Hub id"),
    ],
)  # fmt: skip
def test_data_that_are_no_table_are_an_error(tmp_path, data, content, why):
    if content is not None:
        (tmp_path / data).write_text(content)
    with pytest.raises(UsageError, match=why):
        open_table(str(tmp_path / data))


def test_osv5m_is_not_downloaded_by_its_hub_id():
    with pytest.raises(UsageError, match="vlmgym data fetch osv5m"):
        make_game("geospot").open_data("osv5m/osv5m", "train")


def test_folders_saved_by_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"label": datasets.ClassLabel(names=["no", "yes"]), "image": datasets.Image()})
    rows = {"label": [1, 0], "image": [Image.new("RGB", (4, 4), RED), Image.new("RGB", (4, 4), GREEN)]}
    saved = datasets.Dataset.from_dict(rows, features)
    saved.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict(train=saved, test=saved.select([1])).save_to_disk(str(tmp_path / "two"))
    one, two = open_table(str(tmp_path / "one")), open_table(str(tmp_path / "two"), "test")
    assert (len(one), len(two)) == (2, 1)
    assert (one[0]["label"], two[0]["label"]) == ("yes", "no")
    assert decode(image_bytes(one[0]["image"], None)).getpixel((0, 0)) == RED
    with pytest.raises(UsageError, match="has the splits test, train"):
        open_table(str(tmp_path / "two"))
    state = json.loads((tmp_path / "one" / "state.json").read_text())
    name = state["_data_files"][0]["filename"]
    (tmp_path / "one" / name).rename(tmp_path / name)
    state["_data_files"][0]["filename"] = f"../{name}"
    (tmp_path / "one" / "state.json").write_text(json.dumps(state))
    with pytest.raises(UsageError, match="refers to a file outside the folder"):
        open_table(str(tmp_path / "one"))


def test_layout_of_nlvr2(tmp_path):
    row = {"identifier": "{}-850-0-1", "sentence": "Two dogs.", "label": "True"}
    for split, place in (("dev", "dev"), ("train", "images/train/7")):
        (tmp_path / place).mkdir(parents=True)
        for side in (0, 1):
            (tmp_path / place / f"{split}-850-0-img{side}.png").write_bytes(encoded())
        found = {**row, "identifier": row["identifier"].format(split), "directory": 7 if split == "train" else None}
        (tmp_path / f"{split}.json").write_text(json.dumps(found) + "\n" + json.dumps({**found, "identifier": "../x"}))
        table = open_nlvr2(str(tmp_path), split)
        assert table[0]["left_image"] == f"{place}/{split}-850-0-img0.png"
        assert table[0]["right_image"] == f"{place}/{split}-850-0-img1.png"
        with pytest.raises(BadRow, match="identifier"):
            table[1]


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
    for value, truth in ((True, True), ("False", False), ("TRUE", True), (0, False), (1.0, True)):
        assert truth_of({"x": value}, "x") is truth
    for name in "fh":
        with pytest.raises(BadRow, match="must be true or false"):
            truth_of(row, name)


@pytest.mark.parametrize(("value", "why"), [("x" * 20_001, "more than 20000"), ("\ud800 what", "Unicode: ")])
def test_invalid_text_is_a_bad_row(value, why):
    with pytest.raises(BadRow, match=why):
        text_of({"a": value}, "a")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2"), (-0.0, "0"), (1e300, "1e+300"), ("2.0", "2.0"), (False, "no"), (Decimal("1E+2"), "100"),
        (datetime(2024, 5, 1), "2024-05-01"), (datetime(2024, 5, 1, 9), "2024-05-01T09:00:00"), (time(9), "09:00:00"),
    ],
)  # fmt: skip
def test_values_become_text(value, text):
    assert text_of({"a": value}, "a") == text


# The Hub --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path):
    with serving_hub(tmp_path / "hub") as found:
        yield found


def run(arguments, hub):
    return subprocess.run(arguments, env={**os.environ, **hub.environment}, capture_output=True, text=True)


SHOW_ROWS = """
import sys
from vlmgym.errors import UsageError
from vlmgym.sandbox.data.images import decode, image_bytes
from vlmgym.sandbox.data.tables import open_table
for data in sys.argv[1:]:
    try:
        table = open_table(*data.split())
        for index in range(len(table)):
            row = table[index]
            print(data, decode(image_bytes(row["image"], table.folder)).getpixel((0, 0)), row["label"])
    except UsageError as error:
        print(error)
"""


@pytest.mark.slow
def test_hub_data_as_parquet_images_and_with_a_loading_script(hub):
    table = pa.table({"image": [{"bytes": encoded(c), "path": "x.png"} for c in (RED, GREEN)], "label": [0, 1]})
    table = table.replace_schema_metadata(LABELS)
    for name in (
        "toy/parquet/data/test-00000-of-00001.parquet",
        "toy/script@refs_convert_parquet/default/test/0000.parquet",
    ):
        (hub.root / name).parent.mkdir(parents=True)
        pq.write_table(table, hub.root / name)
    (hub.root / "toy" / "script").mkdir()
    (hub.root / "toy" / "script" / "script.py").write_text("import datasets")
    for label, colour in (("cat", RED), ("dog", GREEN)):
        (hub.root / "toy" / "images" / "test" / label).mkdir(parents=True)
        (hub.root / "toy" / "images" / "test" / label / "1.png").write_bytes(encoded(colour))

    at_url = run([sys.executable, "-c", SHOW_ROWS, "hf://datasets/toy/parquet/data/test-*.parquet"], hub)
    assert [line.partition(" ")[2] for line in at_url.stdout.splitlines()] == [f"{RED} True", f"{GREEN} False"]

    names = ("toy/parquet test", "toy/script test", "toy/images test", "toy/parquet validation", "toy/nothing test")
    shown = run([sys.executable, "-c", SHOW_ROWS, *names], hub).stdout.splitlines()
    assert shown[:6] == [
        *(f"toy/{kind} test {end}" for kind in ("parquet", "script") for end in (f"{RED} True", f"{GREEN} False")),
        *(f"toy/images test {end}" for end in (f"{RED} cat", f"{GREEN} dog")),
    ]
    assert "cannot open 'toy/parquet' on the Hub: Unknown split \"validation\"" in shown[6]
    assert "cannot open 'toy/nothing' on the Hub: Dataset 'toy/nothing' doesn't exist" in shown[7]


def osv5m(hub, shards):
    images = hub.root / "osv5m" / "osv5m" / "images" / "test"
    images.mkdir(parents=True)
    rows = ["id,latitude,longitude,city,cell", *(f'{100 + n},1,2,"Rio, RJ","(0, 8)"' for n in range(2 * shards))]
    (images.parent.parent / "test.csv").write_text("\n".join(rows))
    for shard in range(shards):
        with zipfile.ZipFile(images / f"{shard:02}.zip", "w") as archive:
            for n in range(2):
                archive.writestr(f"{shard:02}/{100 + 2 * shard + n}.jpg", encoded(form="JPEG"))


def fetch(hub, out, *options):
    vlmgym = Path(sys.executable).parent / "vlmgym"
    return run([vlmgym, "data", "fetch", "osv5m", "--output-dir", out, *options], hub)


@pytest.mark.slow
def test_osv5m_download_resumes_by_shard(hub, tmp_path):
    osv5m(hub, 3)
    out = tmp_path / "out"
    hub.missing.add("01.zip")
    broken = fetch(hub, out, "--shards", "2")
    assert broken.returncode == 1
    assert "run it again to continue" in broken.stderr
    assert not (out / "osv5m-test.csv").exists()

    hub.missing.clear()
    hub.requests.clear()
    done = fetch(hub, out, "--shards", "2")
    assert done.returncode == 0, done.stderr
    assert "4 images are present" in done.stdout
    assert not [asked for asked in hub.requests if "00.zip" in asked or "02.zip" in asked]
    table = open_table(str(out / "osv5m-test.csv"))
    assert [table[index]["image"] for index in (0, 3)] == ["images/test/00/100.jpg", "images/test/01/103.jpg"]
    assert table.columns == ("id", "latitude", "longitude", "city", "image")
    assert table[0]["city"] == "Rio, RJ"
    assert decode(image_bytes(table[3]["image"], table.folder)).size == (30, 20)
    assert not list(out.rglob("*.zip"))


# Archives -------------------------------------------------------------------------------------------------------------


def zipped(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["00/1.jpg", "/tmp/1.jpg", "00/../../1.jpg"])
def test_images_are_unzipped_into_one_folder(tmp_path, name):
    members = [(name, b"one"), ("00/2.JPG", b"two"), ("00/run.sh", b"no"), ("00/", b"")]
    unzip_images(zipped(tmp_path / "a.zip", members), tmp_path / "deep" / "out")
    written = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert written.keys() == {"a.zip", "1.jpg", "2.JPG"}
    assert written["1.jpg"] == b"one"


def test_a_bad_archive_is_rejected(tmp_path, monkeypatch):
    content = zipped(tmp_path / "a.zip", [("1.jpg", b"x" * 1000)]).read_bytes()
    lying = content.replace(struct.pack("<I", 1000), struct.pack("<I", 10))
    for number, damaged in enumerate((lying, content[:-30], content[:40] + b"zzzz" + content[44:])):
        (tmp_path / "a.zip").write_bytes(damaged)
        with pytest.raises(UsageError, match="not a valid zip"):
            unzip_images(tmp_path / "a.zip", tmp_path / str(number))
    monkeypatch.setattr(osv5m_module, "MAX_BYTES", 999)
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UsageError, match="total 1000 bytes"):
        unzip_images(tmp_path / "a.zip", tmp_path / "out")
