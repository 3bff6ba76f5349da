"""Images and tables at URLs, from a real server."""

import random
import time
from contextlib import contextmanager

import numpy as np
import pytest

from tests.colours import GREEN, RED, encoded, write_rows
from tests.web_server import body, serving
from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.sandbox.data import images
from vlmgym.sandbox.data.images import image_bytes
from vlmgym.sandbox.data.rows import BadRow
from vlmgym.sandbox.data.tables import open_table


@contextmanager
def web(answers):
    """Serve answers by path; yield the URL and a list of the requested paths."""
    requested = []

    def answer(handler):
        requested.append(handler.path)
        answers[handler.path](handler)

    with serving(answer) as url:
        yield url, requested


def drip(handler):
    """Send one byte at a time, slowly, so that no single read times out."""
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(200 if handler.command == "GET" else 0):
            handler.wfile.write(b"H")
            time.sleep(0.05)
    except OSError:
        pass  # the client has disconnected


def test_images_are_loaded_with_redirects_if_urls_are_allowed(tmp_path):
    image = encoded()
    answers = {"/a.png?size=1": body(image), "/moved": body(b"", 302, Location="/a.png?size=1")}
    with web(answers) as (url, requested):
        data = write_rows(tmp_path, {"image": f"{url}/moved", "question": "Q?", "answer": "red"})
        with pytest.raises(UsageError, match=r"only with urls=true"):
            make_game("vqa", data=data, bad_rows="fail").start_at(0, np.random.default_rng(0))
        assert requested == []
        game = make_game("vqa", data=data, urls=True)
        assert tuple(game.images(game.start_at(0, np.random.default_rng(0)))[0][320, 320]) == RED


# Columns as in mixtrain's documentation; each of the two rows is a place.
PLACES = {"country": ["France", "Japan"], "city": ["Paris", "Tokyo"], "lat": [48.86, 35.68], "lon": [2.35, 139.69]}


def write_places(folder, kind, urls):
    """Write a table of places with pandas; return its path."""
    frame = pytest.importorskip("pandas").DataFrame({"image_url": urls, **PLACES})
    path = folder / f"places.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    return str(path)


def seen(data):
    """Return the middle pixel of each image of a geospot table, in the order of the rows."""
    game = make_game("geospot", data=data, urls=True, order="rows", bad_rows="fail")
    states = [game.start_at(seed, np.random.default_rng(0)) for seed in (0, 1)]
    assert [(state.city, state.longitude) for state in states] == [("Paris", 2.35), ("Tokyo", 139.69)]
    return [tuple(game.images(state)[0][320, 320]) for state in states]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.usefixtures("own_cache")
def test_tables_of_image_urls_and_places_need_no_mapping(tmp_path, kind):
    images = {"/a.png": encoded(RED), "/b%20c.png": encoded(GREEN)}
    with web({path: body(image) for path, image in images.items()}) as (url, _):
        data = write_places(tmp_path, kind, [f"{url}{path}" for path in images])
        assert seen(data) == [RED, GREEN]
    outside = tmp_path / "images of places"
    outside.mkdir()
    for name, image in (("a.png", encoded(RED)), ("b.png", encoded(GREEN))):
        (outside / name).write_bytes(image)
    (tmp_path / "table").mkdir()
    data = write_places(tmp_path / "table", kind, [(outside / name).as_uri() for name in ("a.png", "b.png")])
    with pytest.raises(UsageError, match=r"outside the folder"):
        seen(data)
    (outside / f"places.{kind}").write_bytes((tmp_path / "table" / f"places.{kind}").read_bytes())
    assert seen(str(outside / f"places.{kind}")) == [RED, GREEN]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file://elsewhere/a.png", "not a file on this machine"),
        ("file:///etc/../etc/passwd", "outside the folder"),
        ("http://127.0.0.1:1/a.png", "cannot be loaded"),
        ("http://a.png::file:///etc/passwd", "contains '::'"),
    ],
)
def test_urls_that_cannot_be_loaded_are_bad_rows(tmp_path, url, why):
    with pytest.raises(BadRow, match=why):
        image_bytes(url, tmp_path, urls=True)


@pytest.mark.usefixtures("own_cache")
def test_images_in_buckets_are_loaded_by_fsspec(tmp_path, monkeypatch):
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem
    from fsspec.registry import _registry

    with pytest.raises(UsageError, match=r"needs gcsfs: run .*vlmgym\[cloud\]'"):
        image_bytes("gs://bucket/a.png", None, urls=True)
    for scheme in ("s3", "gs"):
        monkeypatch.setitem(_registry, scheme, MemoryFileSystem)
    urls = [f"s3://bucket{random.random()}/a.png", "gs://other/b c.png"]
    for url, image in zip(urls, (encoded(RED), encoded(GREEN))):
        fsspec.filesystem("memory").pipe(url, image)
    assert seen(write_places(tmp_path, "parquet", urls)) == [RED, GREEN]
    with pytest.raises(BadRow, match="cannot be loaded"):
        image_bytes("gs://other/missing.png", None, urls=True)
    monkeypatch.setattr(images, "MAX_URL_BYTES", 10)
    with pytest.raises(BadRow, match="larger than"):
        image_bytes(urls[1], None, urls=True)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (body(b"", 404), "cannot be loaded"),
        (body(bytes(2_000_001)), "larger than"),
        (drip, "cannot be loaded"),
        (body(b"", 302, Location="file:///etc/passwd"), "cannot be loaded"),
        (body(b"", 302, Location="/here"), "cannot be loaded"),
    ],
)
def test_failed_downloads_are_bad_rows(answer, why, monkeypatch):
    monkeypatch.setattr(images, "MAX_URL_BYTES", 2_000_000)
    monkeypatch.setattr(images, "URL_SECONDS", 0.5 if answer is drip else 20)
    with web({"/here": answer}) as (url, _), pytest.raises(BadRow, match=why):
        image_bytes(f"{url}/here", None, urls=True)


# Tables at URLs -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_cache")
def test_tables_at_urls(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = b'{"a": 1}\n{"a": 2}\n'
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "rows.parquet")
    answers = {"/rows.jsonl": body(rows), "/rows.parquet": body((tmp_path / "rows.parquet").read_bytes())}
    with web({**answers, "/missing.csv": body(b"", 404)}) as (url, _):
        for name in ("rows.jsonl", "rows.parquet"):
            table = open_table(f"{url}/{name}")
            assert [row["a"] for row in table] == [1, 2]
            assert table.folder is None
        with pytest.raises(UsageError, match=r"cannot open http.*/missing\.csv"):
            open_table(f"{url}/missing.csv")


@pytest.mark.usefixtures("own_cache")
def test_url_patterns_and_unknown_file_types():
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    memory = fsspec.filesystem("memory")
    name = f"/data{random.random()}"
    for shard in range(3):
        with memory.open(f"{name}/test-{shard}.parquet", "wb") as file:
            pq.write_table(pa.table({"n": [2 * shard, 2 * shard + 1]}), file)
    table = open_table(f"memory:/{name}/test-*.parquet")
    assert [table[index]["n"] for index in range(len(table))] == list(range(6))
    assert table.folder is None
    for data, why in (
        (f"memory:/{name}/*.csv", "cannot open memory:"),
        ("nothing://a/b.csv", "cannot open nothing://"),
        ("s3://bucket/rows.csv", r"needs s3fs: run .+ -m pip install 'vlmgym\[cloud\]'"),
    ):
        with pytest.raises(UsageError, match=why):
            open_table(data)
    with pytest.raises(UsageError, match="has no split"):
        open_table(f"memory:/{name}/test-0.parquet", "test")
