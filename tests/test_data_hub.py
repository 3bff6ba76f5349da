"""Data from a local server that imitates the Hub, and downloaded archives."""

import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.colours import GREEN, LABELS, RED, encoded
from tests.hub_server import serving_hub
from vlmgym.errors import UsageError
from vlmgym.sandbox.data.images import decode, image_bytes
from vlmgym.sandbox.data.tables import open_table
from vlmgym.sandbox.games.geospot import osv5m as osv5m_module
from vlmgym.sandbox.games.geospot.osv5m import unzip_images

pytestmark = pytest.mark.usefixtures("own_cache")


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
    assert "4 of 6 rows have an image" in done.stdout
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


@pytest.mark.parametrize("name", ["00/1.jpg", "../1.jpg", "/tmp/1.jpg", "00/../../1.jpg", "C:/1.jpg"])
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
    with pytest.raises(UsageError, match="exists"):
        unzip_images(zipped(tmp_path / "b.zip", [("a/1.jpg", b"x"), ("b/1.jpg", b"y")]), tmp_path / "twice")
    monkeypatch.setattr(osv5m_module, "MAX_BYTES", 999)
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UsageError, match="total 1000 bytes"):
        unzip_images(tmp_path / "a.zip", tmp_path / "out")
