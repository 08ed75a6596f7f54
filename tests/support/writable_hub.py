"""A hub on this machine to which the real client uploads: Spaces, data sets, and the check of cards."""

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

import pytest
import yaml

TOKEN = "hf_of_this_test"
_HEAD = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_SMALL = 1_000  # bytes: larger files, and tables, go to the storage of large files


@dataclass
class Repository:
    private: bool
    sdk: str | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    @property
    def card(self) -> dict:
        found = _HEAD.match(self.files.get("README.md", b"").decode())
        return yaml.safe_load(found[1]) if found else {}


@dataclass
class WritableHub:
    """Repositories by kind and name, such as `spaces/somebody/run`."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def written(self) -> list[str]:
        """Requests that change something."""
        return [one for one in self.asked if re.search("create|preupload|/commit/|batch|^PUT", one)]


def card_errors(content: str, kind: str) -> list[str]:
    """What the hub finds wrong with a card's head."""
    found = _HEAD.match(content)
    card = yaml.safe_load(found[1]) if found else None
    if not isinstance(card, dict):
        return ["no metadata"]
    several = {name: one if isinstance(one, list) else [one] for name, one in card.items()}
    forms = {
        "license": r"cc-by-2\.0|apache-2\.0|mit",
        "language": r"[a-z]{2,3}",
        "base_model": r"[\w.-]+(/[\w.-]+)?",
        "datasets": r"[\w.-]+(/[\w.-]+)?",
        "tags": r"[^\n]+",
        "pipeline_tag": r"[a-z0-9]+(-[a-z0-9]+)+",
        "library_name": r"transformers",
        "sdk": r"static",
    }
    wrong = [
        f"{name} {one!r}" for name, form in forms.items() for one in several.get(name, ())
        if not (isinstance(one, str) and re.fullmatch(form, one))
    ]  # fmt: skip
    for model in several.get("model-index", ()):
        for one in model["results"] if model.get("name") else [{}]:
            whole = {"task", "dataset", "metrics"} <= set(one) and one["task"].get("type")
            if not (whole and {"type", "name"} <= set(one["dataset"])):
                wrong.append(f"model-index {one}")
            wrong += [f"metric {m}" for m in one.get("metrics", ()) if not {"type", "value"} <= set(m)]
    if kind == "space" and not {"title", "sdk"} <= set(card):
        wrong.append("title, sdk")
    wrong += [f"config {one}" for one in several.get("configs", ()) if not {"config_name", "data_files"} <= set(one)]
    return wrong


def _handler(hub: WritableHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        do_POST = do_PUT = do_GET

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if path.startswith("/large/"):
                hub.large[path.rpartition("/")[2]] = body
                self._json({})
            elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._json({"error": "Invalid username or password."}, 401)
            elif path == "/api/whoami-v2":
                self._json({"name": "somebody", "type": "user", "orgs": []})
            elif path == "/api/validate-yaml":
                asked = json.loads(body)
                errors = [{"message": one} for one in card_errors(asked["content"], asked["repoType"])]
                self._json({"errors": errors, "warnings": []}, 400 if errors else 200)
            elif path == "/api/repos/create":
                self._create(json.loads(body))
            elif path.endswith(".git/info/lfs/objects/batch"):
                self._batch(json.loads(body))
            else:
                self._repository(path.strip("/").split("/"), body)

        def _create(self, asked: dict) -> None:
            if asked["organization"] != "somebody":
                self._json({"error": "You don't have the rights to create this"}, 403)
                return
            key = f"{asked['type']}s/{asked['organization']}/{asked['name']}"
            private = asked.get("visibility", "private" if asked.get("private") else "public") == "private"
            there = hub.repositories.setdefault(key, new := Repository(private=private, sdk=asked.get("sdk")))
            self._json({"url": f"{hub.address}/{key}"}, 200 if there is new else 409)

        def _batch(self, asked: dict) -> None:
            action = {"upload": {"href": f"{hub.address}/large/"}}
            objects = [
                {**one, "actions": {"upload": {"href": action["upload"]["href"] + one["oid"]}}}
                for one in asked["objects"]
            ]
            self._json({"transfer": "basic", "objects": objects})

        def _repository(self, parts: list[str], body: bytes) -> None:
            there = hub.repositories.get("/".join(parts[1:4]))
            if there is None:
                self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            elif parts[4:5] == ["preupload"]:
                files = [
                    {"path": one["path"], "shouldIgnore": False, "uploadMode": self._mode(one)}
                    for one in json.loads(body)["files"]
                ]
                self._json({"files": files})
            elif parts[4:5] == ["commit"]:
                for line in map(json.loads, body.splitlines()):
                    self._apply(there, line["key"], line["value"])
                sha = hashlib.sha1(body).hexdigest()
                self._json({"commitUrl": f"{hub.address}/{'/'.join(parts[1:4])}/commit/{sha}", "commitOid": sha})
            else:
                siblings = [{"rfilename": name} for name in (".gitattributes", *there.files)]
                facts = {"id": "/".join(parts[2:4]), "private": there.private, "siblings": siblings, "sha": "0" * 40}
                self._json({**facts, "cardData": there.card, "tags": []})

        def _mode(self, one: dict) -> str:
            large = one["path"] != "README.md" and one["size"] > _SMALL
            return "lfs" if large or one["path"].endswith(".parquet") else "regular"

        def _apply(self, there: Repository, key: str, value: dict) -> None:
            if key == "header":
                there.messages.append(value["summary"])
            elif key == "file":
                there.files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                there.files[value["path"]] = hub.large[value["oid"]]
            elif key == "deletedFile":
                del there.files[value["path"]]

        def _json(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            facts = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
            facts["Connection"] = "close"  # a hub that is gone answers nobody
            for name, text in facts.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def writable_hub(patch: pytest.MonkeyPatch, token: str | None = TOKEN) -> Iterator[WritableHub]:
    """Inside, the client talks to this hub, with this token."""
    found = WritableHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    settings = {"HF_HUB_OFFLINE": False, "ENDPOINT": found.address, "HF_HUB_DISABLE_XET": True}
    for name, value in settings.items():
        patch.setattr(f"huggingface_hub.constants.{name}", value)
    patch.setattr("huggingface_hub.hf_api.api.endpoint", found.address)
    patch.setattr("infoflow.report._to_hub.get_token", lambda: token)
    if token is None:
        patch.delenv("HF_TOKEN", raising=False)
    else:
        patch.setenv("HF_TOKEN", token)
    yield found
    server.shutdown()
    server.server_close()
