"""A local server that imitates the Hugging Face Hub: it serves a folder's datasets and models and accepts uploads."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.web_server import Answer, body, serving


class Hub:
    """A running server: its URL, the requests and uploads it has received, and files that it pretends not to have."""

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
    """Serve `root/OWNER/NAME/...` as datasets and models; other revisions are in `NAME@REVISION`, with _ for /."""
    hub = Hub(root)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(handler.path).path)
        sent = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        hub.requests.append(f"{handler.command} {path}")
        respond(handler.command, path, sent)(handler)

    def respond(method: str, path: str, sent: bytes) -> Answer:
        if path == "/api/validate-yaml":
            return as_json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            created = json.loads(sent)
            (root / created["organization"] / created["name"]).mkdir(parents=True)
            return as_json({"url": f"{hub.url}/datasets/{created['organization']}/{created['name']}"})
        if path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(sent)["objects"]
            actions = [{"upload": {"href": f"{hub.url}/lfs/{each['oid']}"}} for each in objects]
            objects = [{**each, "actions": action} for each, action in zip(objects, actions)]
            return as_json({"transfer": "basic", "objects": objects})
        if method == "PUT":
            hub.uploads[path.rpartition("/")[2]] = sent
            return as_json({})
        path = re.sub(r"^/api/models/", "/api/datasets/", path)
        path = re.sub(r"^/([^/]+/[^/]+/resolve)/", r"/datasets/\1/", path)
        named = re.match(r"(?:/api)?/datasets/([^/]+/[^/]+)", path)
        if not (named and list(root.glob(f"{named[1]}*"))):
            return refusal("RepoNotFound")
        if found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/(refs/convert/parquet|[^/]+)/(.*)", path):
            folder, file = repo(found[1], found[2]), repo(found[1], found[2]) / found[3]
            if not file.is_file() or file.name in hub.missing:
                return refusal("EntryNotFound")
            content = file.read_bytes()
            return body(content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=commit(folder))
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(?:/revision/(.*))?", path):
            folder = repo(found[1], found[2] or "main")
            files = [{"rfilename": entry["path"]} for entry in listing(folder) if entry["type"] == "file"]
            return as_json({"id": found[1], "sha": commit(folder), "siblings": files, "private": False, "tags": []})
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/tree/(refs/convert/parquet|[^/]+)(?:/(.*))?", path):
            folder, inner = repo(found[1], found[2]), found[3] or ""
            if not (folder / inner).exists():
                return refusal("EntryNotFound")
            return as_json([entry for entry in listing(folder) if str(entry["path"]).startswith(inner)])
        if re.fullmatch(r"/api/datasets/[^/]+/[^/]+/preupload/main", path):
            paths = [file["path"] for file in json.loads(sent)["files"]]
            modes = ["lfs" if path.endswith(".parquet") else "regular" for path in paths]  # as the Hub does
            uploads = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in zip(paths, modes)]
            return as_json({"files": uploads})
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/commit/main", path):
            take_commit(root / found[1], sent)
            return as_json({"commitUrl": f"{hub.url}/datasets/{found[1]}/commit/0", "commitOid": "0"})
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/paths-info/(.*)", path):
            wanted = json.loads(sent)["paths"]
            return as_json([entry for entry in listing(repo(found[1], found[2])) if entry["path"] in wanted])
        return as_json({"error": "not found"}, 404)

    def take_commit(folder: Path, sent: bytes) -> None:
        for line in map(json.loads, sent.splitlines()):
            if line["key"] in ("file", "lfsFile"):
                value, path = line["value"], folder / line["value"]["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                content = base64.b64decode(value["content"]) if "content" in value else hub.uploads[value["oid"]]
                path.write_bytes(content)

    def repo(name: str, revision: str) -> Path:
        found = [folder for folder in root.glob(f"{name}@*") if revision in (commit(folder), revision_of(folder))]
        return found[0] if found else root / name

    with serving(answer) as hub.url:
        yield hub


def as_json(value: Any, status: int = 200) -> Answer:
    return body(json.dumps(value).encode(), status, Content_Type="application/json")


def refusal(code: str) -> Answer:
    return body(b"", 404, X_Error_Code=code)


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
