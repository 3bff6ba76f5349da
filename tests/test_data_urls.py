"""Images and tables at URLs, from a real server: limits, redirects, and private addresses."""

import json
import random
import socket
import subprocess
import time
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.colours import GREEN, RED, encoded
from tests.web_server import body, serving
from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.sandbox.datasets import download as download_module
from vlmgym.sandbox.datasets.download import download, download_object, is_public
from vlmgym.sandbox.datasets.images import image_bytes
from vlmgym.sandbox.datasets.opening import open_table
from vlmgym.sandbox.datasets.rows import BadRow

LOCAL = ("127.0.0.1",)


@contextmanager
def web(answers, certificate=None):
    """Serve answers by path; yield the URL and a list of the requested paths."""
    requested = []

    def answer(handler):
        requested.append(handler.path)
        answers[handler.path](handler)

    with serving(answer, certificate) as url:
        yield url, requested


def redirect(to):
    return body(b"", 302, Location=to)


def drip(handler):
    """Send one byte at a time, slowly, so that no single read times out."""
    handler.send_response(200)
    handler.end_headers()
    drip_headers(handler)


def flood(handler):
    """Send data endlessly."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(bytes(1000))
    except OSError:
        pass  # the client has disconnected


def drip_headers(handler):
    try:
        for _ in range(200):
            handler.connection.sendall(b"H")
            time.sleep(0.05)
    except OSError:
        pass  # the client has disconnected


def test_images_are_loaded_from_allowed_hosts_and_redirects():
    image = encoded()
    with web({"/a.png?size=1": body(image), "/moved": redirect("/a.png?size=1")}) as (url, _):
        assert image_bytes(f"{url}/a.png?size=1", None, LOCAL) == image
        assert image_bytes(f"{url}/moved", None, LOCAL) == image
        assert image_bytes(url.replace("127.0.0.1", "LOCALHOST") + "/moved", None, ("localhost",)) == image


def test_a_task_loads_urls_of_hosts_in_url_hosts(tmp_path):
    with web({"/a.png": body(encoded(RED))}) as (url, requested):
        (tmp_path / "rows.jsonl").write_text(json.dumps({"image": f"{url}/a.png", "question": "Q?", "answer": "red"}))
        data = {"data": str(tmp_path / "rows.jsonl"), "urls": True}
        game = make_game("vqa", **data, url_hosts="127.0.0.1,other")
        (image,) = game.images(game.start_at(0, np.random.default_rng(0)))
        assert tuple(image[320, 320]) == RED
        requested.clear()
        with pytest.raises(UsageError, match=r"not public.* url_hosts=127\.0\.0\.1"):
            make_game("vqa", **data, bad_rows="fail").start_at(0, np.random.default_rng(0))
        assert requested == []
    with pytest.raises(UsageError, match="url_hosts needs urls=true"):
        make_game("vqa", data=data["data"], url_hosts="127.0.0.1")


# Columns as in mixtrain's documentation; each of the two rows is a place.
PLACES = {"country": ["France", "Japan"], "city": ["Paris", "Tokyo"], "lat": [48.86, 35.68], "lon": [2.35, 139.69]}


def write_places(folder, kind, urls):
    """Write a table of places with pandas; return its path."""
    frame = pytest.importorskip("pandas").DataFrame({"image_url": urls, **PLACES})
    path = folder / f"places.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    return str(path)


def seen(data, **settings):
    """Return the middle pixel of each image of a geospot table, in the order of the rows."""
    game = make_game("geospot", data=data, urls=True, order="rows", bad_rows="fail", **settings)
    states = [game.start_at(seed, np.random.default_rng(0)) for seed in (0, 1)]
    assert [(state.city, state.longitude) for state in states] == [("Paris", 2.35), ("Tokyo", 139.69)]
    return [tuple(game.images(state)[0][320, 320]) for state in states]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.usefixtures("own_cache")
def test_tables_of_image_urls_and_places_need_no_mapping(tmp_path, kind):
    images = {"/a.png": encoded(RED), "/b%20c.png": encoded(GREEN)}
    with web({path: body(image) for path, image in images.items()}) as (url, _):
        data = write_places(tmp_path, kind, [f"{url}{path}" for path in images])
        assert seen(data, url_hosts="127.0.0.1") == [RED, GREEN]
    outside = tmp_path / "images of places"
    outside.mkdir()
    for name, image in (("a.png", encoded(RED)), ("b.png", encoded(GREEN))):
        (outside / name).write_bytes(image)
    (tmp_path / "table").mkdir()
    data = write_places(tmp_path / "table", kind, [(outside / name).as_uri() for name in ("a.png", "b.png")])
    with pytest.raises(UsageError, match=r"outside the folder .*: allow it with url_hosts=localhost"):
        seen(data)
    assert seen(data, url_hosts="localhost") == [RED, GREEN]
    (outside / f"places.{kind}").write_bytes((tmp_path / "table" / f"places.{kind}").read_bytes())
    assert seen(str(outside / f"places.{kind}")) == [RED, GREEN]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file://elsewhere/a.png", "not a file on this machine"),
        ("file:///etc/../etc/passwd", "outside the folder"),
        ("file:///a%00b", "cannot be read|outside"),
        ("s3://bucket/a.png", "with your credentials: allow it with url_hosts=bucket"),
        ("gs://bucket/a.png", "with your credentials: allow it with url_hosts=bucket"),
    ],
)
def test_files_and_buckets_must_be_allowed_by_name(tmp_path, url, why):
    with pytest.raises(BadRow, match=why):
        image_bytes(url, tmp_path, ())
    with pytest.raises(BadRow, match="only with urls=true"):
        image_bytes(url, tmp_path)


@pytest.mark.usefixtures("own_cache")
def test_images_in_buckets_are_loaded_by_fsspec(tmp_path, monkeypatch):
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem
    from fsspec.registry import _registry

    for url, package in (("s3://bucket/a.png", "s3fs"), ("gs://bucket/a.png", "gcsfs")):
        with pytest.raises(UsageError, match=rf"needs {package}: run .+ -m pip install 'vlmgym\[cloud\]'"):
            image_bytes(url, None, ("bucket",))
    for scheme in ("s3", "gs"):
        monkeypatch.setitem(_registry, scheme, MemoryFileSystem)
    urls = [f"s3://bucket{random.random()}/a.png", "gs://other/b c.png"]
    for url, image in zip(urls, (encoded(RED), encoded(GREEN))):
        fsspec.filesystem("memory").pipe(url, image)
    buckets = f"{urls[0].split('/')[2]},other"
    assert seen(write_places(tmp_path, "parquet", urls), url_hosts=buckets) == [RED, GREEN]
    with pytest.raises(BadRow, match="cannot be loaded"):
        image_bytes("gs://other/missing.png", None, ("other",))
    with pytest.raises(BadRow, match="larger than"):
        download_object(urls[1], ("other",), max_bytes=10)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (body(b"", 404), "returned 404"),
        (body(bytes(2001)), "larger than"),
        (flood, "larger than"),
        (drip, "longer than 0.5 seconds"),
        (drip_headers, "longer than 0.5 seconds"),
        (redirect("file:///etc/passwd"), "not an http or https URL"),
        (redirect("http://127.0.0.2:1/a.png"), "127.0.0.2, which is not public"),
        (redirect("/here"), "redirects more than"),
    ],
)
def test_failed_downloads_are_bad_rows(answer, why):
    with web({"/here": answer}) as (url, _), pytest.raises(BadRow, match=why):
        download(f"{url}/here", LOCAL, seconds=0.5 if "seconds" in why else 20, max_bytes=2000)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a.png", "http://[broken/a.png", "http://", "http://a:b/"])
def test_urls_without_a_server_are_bad_rows(url):
    with pytest.raises(BadRow, match="cannot be loaded"):
        download(url, LOCAL)


NOT_PUBLIC = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.2.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32",
]  # fmt: skip
NOT_PUBLIC_6 = [
    "::/128", "::1/128", "::/96", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "2001:db8::/32", "64:ff9b:1::/48",
]  # fmt: skip


def spellings(ip):
    """Return spellings of an IPv4 address that some resolvers accept."""
    number, (a, b, c, d) = int(ip), ip.packed
    inside = [f"::ffff:{ip}", f"::ffff:{number >> 16:x}:{number & 0xFFFF:x}", f"64:ff9b::{ip}", f"::{ip}",
              f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1", IPv6Address(f"::ffff:{ip}").exploded]  # fmt: skip
    return [
        f"{ip}", f"{number}", f"{number:#x}", f"0{number:o}", f"{a}.{number & 0xFFFFFF}", f"{a}.{b}.{c << 8 | d}",
        f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}", f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"user@{ip}", f"{ip}.",
        "".join(chr(ord(digit) + 0xFEE0) for digit in str(a)) + f".{b}.{c}.{d}", *(f"[{text}]" for text in inside),
    ]  # fmt: skip


def rejected(url):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", None)  # any connection would raise a TypeError
        with pytest.raises(BadRow):
            download(url)


@given(st.sampled_from(NOT_PUBLIC), st.randoms(use_true_random=False), st.integers(0, 16))
def test_private_ipv4_addresses_are_never_contacted(network, chance, spelling):
    network = IPv4Network(network)
    ip = IPv4Address(int(network[0]) + chance.randrange(network.num_addresses))
    rejected(f"http://{spellings(ip)[spelling]}/a.png")


@given(st.sampled_from(NOT_PUBLIC_6), st.randoms(use_true_random=False))
def test_private_ipv6_addresses_are_never_contacted(network, chance):
    network = IPv6Network(network)
    ip = IPv6Address(int(network[0]) + chance.randrange(network.num_addresses))
    for text in (ip.compressed, ip.exploded, f"{ip}%lo"):
        rejected(f"http://[{text}]/a.png")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "127.1"])
def test_names_of_private_addresses_are_never_contacted(host):
    rejected(f"http://{host}/a.png")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_recognised(address):
    assert is_public(address)


def test_hosts_are_resolved_once_and_must_be_public(monkeypatch):
    """A server cannot bypass the check with DNS rebinding."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    def resolve(host, port, *args, **options):
        found = answers.pop(0) if host == "rebind.example" else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    with web({"/a.png": body(encoded())}) as (url, requested):
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr(download_module, "is_public", lambda address: address == "127.0.0.1")
        named = url.replace("127.0.0.1", "rebind.example") + "/a.png"
        assert download(named) == encoded()
        with pytest.raises(BadRow, match=r"10\.0\.0\.1, which is not public"):
            download(named)
        answers.append(["127.0.0.1", "10.0.0.1"])
        with pytest.raises(BadRow, match="not public"):
            download(named)
        assert requested == ["/a.png"]


def test_https_verifies_the_host_name(tmp_path, monkeypatch):
    certificate = tmp_path / "both.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", "-", "-out", "-"],
        capture_output=True, check=True,
    )  # fmt: skip
    certificate.write_bytes(made.stdout)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    download_module._tls.cache_clear()
    with web({"/a.png": body(encoded())}, certificate) as (url, _):
        named = url.replace("127.0.0.1", "localhost")
        assert download(f"{named}/a.png", ("localhost",)) == encoded()
        with pytest.raises(BadRow, match=r"IP address mismatch"):
            download(f"{url}/a.png", LOCAL)
        monkeypatch.delenv("SSL_CERT_FILE")
        download_module._tls.cache_clear()
        with pytest.raises(BadRow, match="certificate verify failed"):
            download(f"{named}/a.png", ("localhost",))
    download_module._tls.cache_clear()


# Tables at URLs -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_cache")
def test_tables_at_urls_are_cached_until_they_change():
    rows = b'{"a": 1}\n{"a": 2}\n'
    answers = {"/rows.jsonl": body(rows, ETag='"1"')}
    with web(answers) as (url, _):
        for content in (rows, rows, b'{"a": 3}\n'):
            if content != rows:
                answers["/rows.jsonl"] = body(content, ETag='"2"')
            open_table.__globals__["_open"].cache_clear()
            table = open_table(f"{url}/rows.jsonl")
            assert [table[index] for index in range(len(table))] == [json.loads(line) for line in content.splitlines()]
        answers["/missing.csv"] = body(b"", 404)
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
        (f"memory:/{name}/*.csv", "no file matches"),
        ("nothing://a/b.csv", "cannot open nothing://"),
        ("s3://bucket/rows.csv", r"needs s3fs: run .+ -m pip install 'vlmgym\[cloud\]'"),
        ("gs://bucket/rows.csv", r"needs gcsfs: run .+ -m pip install 'vlmgym\[cloud\]'"),
    ):
        with pytest.raises(UsageError, match=why):
            open_table(data)
    with pytest.raises(UsageError, match="has no split"):
        open_table(f"memory:/{name}/test-0.parquet", "test")
