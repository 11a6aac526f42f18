"""A server on this machine that speaks those endpoints of the Hugging Face Hub that svsl uses."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test"


@dataclass
class Repository:
    """Commits by their names, branches and tags included: the files of each, by path."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    private: bool = False

    def commit(self, files: dict[str, bytes]) -> str:
        """Makes files the newest commit; returns its name."""
        content = json.dumps({path: hashlib.sha256(data).hexdigest() for path, data in files.items()})
        name = hashlib.sha1(f"{len(self.commits)} {content}".encode()).hexdigest()
        self.commits[name], self.branches["main"] = dict(files), name
        return name


class Hub(ThreadingHTTPServer):
    """The server; `repositories` is what it holds, `requests` what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        """What HF_ENDPOINT must be."""
        return f"http://127.0.0.1:{self.server_port}"

    def publish(self, name: str, **files: bytes) -> str:
        """Makes a repository with one commit; `_` in a file's name stands for a dot."""
        self.repositories[name] = Repository()
        return self.repositories[name].commit({path.replace("_", "."): data for path, data in files.items()})


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Runs a server until the end of the block."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        self.server.requests.append(f"{self.command} {urlsplit(self.path).path}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(*found.groups())
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/main", path):
            repository = self.server.repositories[found[1]]
            files = repository.commits.get(repository.branches.get("main", ""), {})
            self._json([{"type": "file", "path": p, "size": len(data), "oid": "0" * 40} for p, data in files.items()])
        else:
            self._error(404, "RepoNotFound")

    def do_POST(self) -> None:
        path, body = unquote(urlsplit(self.path).path), self._body()
        if path == "/api/validate-yaml":
            self._json({"warnings": [], "errors": []})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._error(401, "", "Invalid credentials in Authorization header")
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", path):
            files = [{"path": f["path"], "uploadMode": _mode(f["path"])} for f in json.loads(body)["files"]]
            self._json({"files": [{**file, "shouldIgnore": False} for file in files]})
        elif found := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            objects = json.loads(body)["objects"]
            actions = [{"upload": {"href": f"{self.server.address}/blobs/{o['oid']}"}} for o in objects]
            answer = [{**o, "actions": action} for o, action in zip(objects, actions, strict=True)]
            self._json({"transfer": "basic", "objects": answer})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            self._commit(found[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._error(404, "RepoNotFound")

    def do_PUT(self) -> None:
        self.server.blobs[self.path.rpartition("/")[2]] = self._body()
        self._json({})

    def _file(self, name: str, revision: str, file: str) -> None:
        repository = self.server.repositories.get(name)
        if repository is None or (repository.private and self.headers.get("Authorization") != f"Bearer {TOKEN}"):
            self._error(401, "RepoNotFound")
            return
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            self._error(404, "RevisionNotFound")
        elif file not in repository.commits[commit]:
            self._error(404, "EntryNotFound", headers={"X-Repo-Commit": commit})
        else:
            data = repository.commits[commit][file]
            self._answer(200, data, {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'})

    def _create(self, wish: dict[str, str]) -> None:
        name = f"{wish.get('organization') or 'me'}/{wish['name']}"
        if wish.get("organization") == "somebody":
            self._error(403, "", 'You don\'t have the rights to create a model under the namespace "somebody".')
            return
        exists = name in self.server.repositories
        private = bool(wish.get("private")) or wish.get("visibility") == "private"
        self.server.repositories.setdefault(name, Repository(private=private))
        self._json({"url": f"{self.server.address}/{name}", "name": name, "id": name}, 409 if exists else 200)

    def _commit(self, name: str, lines: list[dict[str, dict[str, str]]]) -> None:
        repository = self.server.repositories[name]
        files = dict(repository.commits.get(repository.branches.get("main", ""), {}))
        for line in lines:
            value, kind = line["value"], str(line["key"])
            if kind == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif kind == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
            elif kind == "deletedFile":
                del files[value["path"]]
        oid = repository.commit(files)
        self._json({"commitUrl": f"{self.server.address}/{name}/commit/{oid}", "commitOid": oid, "success": True})

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _json(self, value: object, status: int = 200) -> None:
        self._answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None) -> None:
        reasons = {"X-Error-Code": code, "X-Error-Message": message}
        self._answer(status, b"", {name: text for name, text in reasons.items() if text} | (headers or {}))

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _mode(path: str) -> str:
    """As on the Hub: text is part of the commit, anything else is stored beside it."""
    return "regular" if path.endswith((".md", ".json")) else "lfs"
