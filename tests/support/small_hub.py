"""A small hub of models on this machine, which speaks as the real one does to the real client."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


@dataclass
class Hub:
    """Repositories: branches, and the folder of each commit."""

    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    commits: dict[tuple[str, str], Path] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add(self, repository: str, branch: str, folder: Path) -> str:
        commit = hashlib.sha1(f"{repository} {branch}".encode()).hexdigest()
        self.branches.setdefault(repository, {})[branch] = commit
        self.commits[repository, commit] = folder
        return commit

    def downloads(self) -> list[str]:
        return [path for path in self.asked if path.startswith("GET") and path.endswith(".safetensors")]


def _files(folder: Path) -> list[dict]:
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        one = {"rfilename": path.name, "path": path.name, "type": "file", "size": len(data), "oid": _oid(data)}
        one |= {"blobId": _oid(data)}
        if path.suffix == ".safetensors":
            sha = hashlib.sha256(data).hexdigest()
            one["lfs"] = {"sha256": sha, "oid": sha, "size": len(data), "pointerSize": 130}
        found.append(one)
    return found


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                self._api("/".join(parts[2:4]), parts[4:])
            elif "resolve" in parts:
                self._file("/".join(parts[:2]), parts[3], parts[4], body)
            else:
                self._json({"error": "no such page"}, 404)

        def _api(self, repository: str, rest: list[str]) -> None:
            branches = hub.branches.get(repository)
            if branches is None:
                self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            elif rest[:1] == ["refs"]:
                refs = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for n, c in branches.items()]
                self._json({"branches": refs, "converts": [], "tags": []})
            else:
                revision = rest[1] if len(rest) > 1 else "main"
                commit = branches.get(revision, revision)
                files = _files(hub.commits[repository, commit])
                tree = rest[:1] == ["tree"]
                self._json(files if tree else {"id": repository, "sha": commit, "siblings": files})

        def _file(self, repository: str, revision: str, name: str, body: bool) -> None:
            commit = hub.branches[repository].get(revision, revision)
            path = hub.commits[repository, commit] / name
            if not path.exists():
                self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
                return
            data = path.read_bytes()
            etag = hashlib.sha256(data).hexdigest() if path.suffix == ".safetensors" else _oid(data)
            self._send(data if body else b"", 200, {"ETag": f'"{etag}"', "X-Repo-Commit": commit}, len(data))

        def _json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(value).encode()
            self._send(data, status, {"Content-Type": "application/json", **(headers or {})}, len(data))

        def _send(self, data: bytes, status: int, headers: dict[str, str], length: int) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(length)}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def small_hub(cache: Path, patch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Inside, the client asks this hub, and keeps what it fetches in `cache`."""
    found = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    settings = {"HF_HUB_OFFLINE": False, "ENDPOINT": address, "HUGGINGFACE_CO_URL_TEMPLATE": template}
    for name, value in {**settings, "HF_HUB_CACHE": str(cache), "HUGGINGFACE_HUB_CACHE": str(cache)}.items():
        patch.setattr(f"huggingface_hub.constants.{name}", value)
    patch.setattr("huggingface_hub.hf_api.api.endpoint", address)
    patch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    yield found
    server.shutdown()
    server.server_close()
