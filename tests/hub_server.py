"""A local server that imitates the Hugging Face Hub: serves the datasets and models of a folder, and takes uploads."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit


class Hub:
    """A running server: its URL, the requests it received, and files that it pretends to lack."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = ""
        self.requests: list[str] = []
        self.missing: set[str] = set()
        self.uploads: dict[str, bytes] = {}

    @property
    def environment(self) -> dict[str, str]:
        home = str(self.root.parent / "hf_home")
        return {"HF_ENDPOINT": self.url, "HF_HOME": home, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


@contextmanager
def serving_hub(root: Path) -> Iterator[Hub]:
    """Serve `root/OWNER/NAME/...` as datasets and as models, and other revisions as `NAME@REVISION`, with _ for /."""
    hub = Hub(root)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_HEAD(self):
            self.answer()

        def do_GET(self):
            self.answer()

        def do_POST(self):
            self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.answer()

        do_PUT = do_POST

        def answer(self):
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            if path == "/api/validate-yaml":
                self.send_json({"errors": [], "warnings": []})
                return
            if path == "/api/repos/create":
                created = json.loads(self.body)
                (root / created["organization"] / created["name"]).mkdir(parents=True)
                self.send_json({"url": f"{hub.url}/datasets/{created['organization']}/{created['name']}"})
                return
            if path.endswith("/info/lfs/objects/batch"):
                objects = json.loads(self.body)["objects"]
                actions = [{"upload": {"href": f"{hub.url}/lfs/{each['oid']}"}} for each in objects]
                objects = [{**each, "actions": action} for each, action in zip(objects, actions)]
                self.send_json({"transfer": "basic", "objects": objects})
                return
            if self.command == "PUT":
                hub.uploads[path.rpartition("/")[2]] = self.body
                self.send_json({})
                return
            path = re.sub(r"^/api/models/", "/api/datasets/", path)
            path = re.sub(r"^/([^/]+/[^/]+/resolve)/", r"/datasets/\1/", path)
            named = re.match(r"(?:/api)?/datasets/([^/]+/[^/]+)", path)
            if not (named and list(root.glob(f"{named[1]}*"))):
                self.refuse("RepoNotFound")
            elif found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/(refs/convert/parquet|[^/]+)/(.*)", path):
                self.send_file(repo(found[1], found[2]), found[3])
            elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(?:/revision/(.*))?", path):
                self.send_repo(found[1], found[2] or "main")
            elif found := re.fullmatch(
                r"/api/datasets/([^/]+/[^/]+)/tree/(refs/convert/parquet|[^/]+)(?:/(.*))?", path
            ):
                folder, inner = repo(found[1], found[2]), found[3] or ""
                if (folder / inner).exists():
                    self.send_json([entry for entry in listing(folder) if entry["path"].startswith(inner)])
                else:
                    self.refuse("EntryNotFound")
            elif re.fullmatch(r"/api/datasets/[^/]+/[^/]+/preupload/main", path):
                modes = {True: "lfs", False: "regular"}  # as the Hub decides for Parquet files and cards
                paths = [file["path"] for file in json.loads(self.body)["files"]]
                files = [{"path": path, "uploadMode": modes[path.endswith(".parquet")]} for path in paths]
                self.send_json({"files": [{**file, "shouldIgnore": False} for file in files]})
            elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/commit/main", path):
                self.take_commit(root / found[1])
                self.send_json({"commitUrl": f"{hub.url}/datasets/{found[1]}/commit/0", "commitOid": "0"})
            elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/paths-info/(.*)", path):
                wanted = json.loads(self.body)["paths"]
                folder = repo(found[1], found[2])
                self.send_json([entry for entry in listing(folder) if entry["path"] in wanted])
            else:
                self.send_json({"error": "not found"}, 404)

        def take_commit(self, folder):
            for line in map(json.loads, self.body.splitlines()):
                if line["key"] in ("file", "lfsFile"):
                    value, path = line["value"], folder / line["value"]["path"]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    content = base64.b64decode(value["content"]) if "content" in value else hub.uploads[value["oid"]]
                    path.write_bytes(content)

        def send_repo(self, name, revision):
            folder = repo(name, revision)
            files = [{"rfilename": entry["path"]} for entry in listing(folder) if entry["type"] == "file"]
            self.send_json({"id": name, "sha": commit(folder), "siblings": files, "private": False, "tags": []})

        def refuse(self, why):
            self.send_response(404)
            self.send_header("X-Error-Code", why)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send_json(self, value, status=200):
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def send_file(self, folder, name):
            path = folder / name
            if not path.is_file() or path.name in hub.missing:
                self.refuse("EntryNotFound")
                return
            content = path.read_bytes()
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit(folder))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def repo(name, revision):
        found = [folder for folder in root.glob(f"{name}@*") if revision in (commit(folder), revision_of(folder))]
        return found[0] if found else root / name

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def revision_of(folder: Path) -> str:
    return folder.name.partition("@")[2].replace("_", "/")


def commit(folder: Path) -> str:
    return hashlib.sha1(json.dumps([folder.name, listing(folder)]).encode()).hexdigest()


def listing(folder: Path) -> list[dict[str, object]]:
    entries = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file():
            oid = hashlib.sha1(path.read_bytes()).hexdigest()
            entries.append({"type": "file", "path": name, "size": path.stat().st_size, "oid": oid})
        else:
            entries.append({"type": "directory", "path": name, "oid": hashlib.sha1(name.encode()).hexdigest()})
    return entries
