import errno
import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infoflow.corpus import _package_index as index
from infoflow.corpus._package_index import NotOnIndex, PipSettings, fetch_from_index, pip_settings, redacted
from infoflow.foundation import UserError

CONTENT = b"a source distribution" * 1000
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NAME = "demo-1.0.tar.gz"


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / NAME).write_bytes(CONTENT)
    (folder / "demo-0.9.tar.gz").write_bytes(b"old")
    return folder


@pytest.fixture
def html_index(tmp_path, place):
    page = tmp_path / "simple" / "demo"
    page.mkdir(parents=True)
    links = [f'<a href="../../files/{name}#sha256=0">{name}</a>' for name in ("demo-0.9.tar.gz", NAME)]
    (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{'<br>'.join(links)}</body></html>")
    return (tmp_path / "simple").as_uri()


@pytest.fixture
def json_index(tmp_path, place):
    page = tmp_path / "json" / "demo"
    page.mkdir(parents=True)
    files = [{"filename": NAME, "url": f"../../files/{NAME}", "hashes": {}}]
    (page / "index.html").write_text(json.dumps({"meta": {"api-version": "1.0"}, "files": files}))
    return (tmp_path / "json").as_uri()


@pytest.mark.parametrize("kind", ["html", "json", "folder", "file", "path"])
def test_every_kind_of_place(kind, html_index, json_index, place, tmp_path):
    settings = {
        "html": PipSettings(indexes=(html_index,)),
        "json": PipSettings(indexes=(json_index + "/",)),
        "folder": PipSettings(indexes=(), find_links=(place.as_uri(),)),
        "file": PipSettings(indexes=(), find_links=((place / NAME).as_uri(),)),
        "path": PipSettings(indexes=(), find_links=(str(place),)),
    }[kind]
    fetch_from_index("demo", NAME, SHA256, tmp_path / "got", settings, size=SIZE)
    assert (tmp_path / "got").read_bytes() == CONTENT


def test_the_next_index_is_tried(html_index, tmp_path):
    settings = PipSettings(indexes=((tmp_path / "absent").as_uri(), html_index))
    fetch_from_index("demo", NAME, SHA256, tmp_path / "got", settings, size=SIZE)
    assert (tmp_path / "got").exists()


def test_a_wrong_hash_leaves_no_file(html_index, tmp_path):
    with pytest.raises(NotOnIndex, match=f"sha256 {SHA256}, not the expected 000"):
        fetch_from_index(
            "demo", NAME, "0" * 64, tmp_path / "new" / "got", PipSettings(indexes=(html_index,)), size=SIZE
        )
    assert list((tmp_path / "new").iterdir()) == []


def test_reasons_are_told(html_index, tmp_path):
    with pytest.raises(NotOnIndex, match=r"does not list demo-2\.0"):
        fetch_from_index(
            "demo", "demo-2.0.tar.gz", SHA256, tmp_path / "got", PipSettings(indexes=(html_index,)), size=SIZE
        )
    with pytest.raises(NotOnIndex, match="no index configured"):
        fetch_from_index("demo", NAME, SHA256, tmp_path / "got", PipSettings(indexes=()), size=SIZE)
    with pytest.raises(NotOnIndex, match="cannot open ftp"):
        fetch_from_index("demo", NAME, SHA256, tmp_path / "got", PipSettings(indexes=("ftp://x/simple",)), size=SIZE)


def test_passwords_are_never_told(tmp_path):
    assert redacted("https://me:secret@host:8080/simple?x=1") == "https://host:8080/simple?x=1"
    settings = PipSettings(indexes=("http://me:secret@127.0.0.1:9/simple",), timeout=2)
    with pytest.raises(NotOnIndex) as error:
        fetch_from_index("demo", NAME, SHA256, tmp_path / "got", settings, size=SIZE)
    assert "secret" not in str(error.value)
    assert "127.0.0.1" in str(error.value)


def test_nothing_is_run(html_index, tmp_path, monkeypatch):
    def refuse(*arguments, **_):
        raise AssertionError(f"a process was started: {arguments}")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    fetch_from_index("demo", NAME, SHA256, tmp_path / "got", PipSettings(indexes=(html_index,)), size=SIZE)
    assert (tmp_path / "got").exists()


@pytest.fixture
def pip_says(monkeypatch):
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_DEFAULT_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)

    def pip_says(config, help_text=""):
        monkeypatch.setattr(index, "_pip", lambda *a: config if a[:2] == ("config", "list") else help_text)

    return pip_says


def test_settings_come_from_pip(pip_says):
    pip_says(
        "global.index-url='https://global/simple'\nglobal.extra-index-url='https://a/s\\nhttps://b/s'\n"
        "install.index-url='https://install/simple'\n:env:.cert='/c.pem'\nglobal.cert='/other.pem'\n"
        "global.find-links='/wheels'\nglobal.proxy='http://proxy:1'\nglobal.timeout='7'\n"
        "global.trusted-host='a b'\nnonsense\n"
    )
    assert pip_settings() == PipSettings(
        indexes=("https://install/simple", "https://a/s", "https://b/s"),
        find_links=("/wheels",),
        cert="/c.pem",
        proxy="http://proxy:1",
        trusted_hosts=("a", "b"),
        timeout=7.0,
    )


def test_no_index_and_the_default_index(pip_says):
    help_text = "  -i, --index-url <url>   Base URL of the index (default\n    https://default/simple). More."
    pip_says("", help_text)
    assert pip_settings().indexes == ("https://default/simple",)
    pip_says("global.no-index='true'\nglobal.extra-index-url='https://a/s'\n", help_text)
    assert pip_settings().indexes == ()


def test_the_environment_counts_without_pip(pip_says, monkeypatch):
    pip_says("")
    monkeypatch.setenv("PIP_INDEX_URL", "https://environment/simple")
    assert pip_settings().indexes == ("https://environment/simple",)


def test_uv_s_variables_count_behind_pip_s(pip_says, monkeypatch):
    pip_says("")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "company=https://uv.example/simple")
    monkeypatch.setenv("UV_INDEX", "https://one.example/simple other=https://two.example/simple?a=b")
    found = index.pip_settings()
    assert found.indexes == (
        "https://uv.example/simple",
        "https://one.example/simple",
        "https://two.example/simple?a=b",
    )
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example/simple")
    assert index.pip_settings().indexes[0] == "https://pip.example/simple"


def test_an_environment_without_pip_asks_the_one_that_comes_with_python(monkeypatch):
    """As uv makes them: without it no index would be known, and no corpus could be fetched."""
    whole = list(index._pips())
    assert whole[0] == [sys.executable, "-m", "pip"]
    monkeypatch.setattr(index, "_pips", lambda: iter([[sys.executable, "-m", "no_such_pip"], *whole[1:]]))
    assert "--index-url" in index._pip("download", "--help")


def test_this_pip_can_be_asked(monkeypatch):
    """The real pip: its default index stands in its help."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("pip is not installed here")
    assert (index._default_index() or "").startswith("https://")


class _Endless(BaseHTTPRequestHandler):
    """An index whose pages, or whose files, never end."""

    def do_GET(self):
        page = self.path.endswith("/demo/")
        self.send_response(200)
        self.end_headers()
        try:
            if page and self.server.endless == "file":
                self.wfile.write(f'<a href="/files/{NAME}">{NAME}</a>'.encode())
                return
            while True:
                self.wfile.write(b"<p>more</p>" * 10_000)
                self.server.sent += 110_000
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def endless():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endless)
    server.sent = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("what", ["page", "file"])
def test_what_never_ends_is_given_up(what, endless, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_LARGEST_PAGE", 1_000_000)
    endless.endless = what
    settings = PipSettings(indexes=(f"http://127.0.0.1:{endless.server_port}/simple",))
    with pytest.raises(NotOnIndex, match=f"the {what} has more than the expected"):
        fetch_from_index("demo", NAME, SHA256, tmp_path / "new" / "got", settings, size=SIZE)
    assert not list((tmp_path / "new").glob("*"))
    assert endless.sent < 20_000_000


def test_a_trickle_is_given_up(html_index, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_PATIENCE", 0.0)
    monkeypatch.setattr(index, "_SLOWEST", 1e12)
    with pytest.raises(NotOnIndex, match="is too slow"):
        fetch_from_index("demo", NAME, SHA256, tmp_path / "got", PipSettings(indexes=(html_index,)), size=SIZE)


@pytest.mark.parametrize(
    "page",
    [b"{}", b'{"files": 3}', b'{"files": [1]}', b'{"files": ' + b"[" * 100_000, b"{" * 100_000, b"<![x[", b"\xff\x00"],
)
def test_pages_of_nonsense_are_told_as_such(page, tmp_path):
    folder = tmp_path / "simple" / "demo"
    folder.mkdir(parents=True)
    (folder / "index.html").write_bytes(page)
    settings = PipSettings(indexes=((tmp_path / "simple").as_uri(),))
    with pytest.raises(NotOnIndex, match=r"no list of files in JSON|broken HTML|does not list"):
        fetch_from_index("demo", NAME, SHA256, tmp_path / "got", settings, size=SIZE)


def test_a_full_disk_is_not_the_index_s_fault(html_index, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(index, "_download", full)
    with pytest.raises(OSError, match="No space left"):
        fetch_from_index("demo", NAME, SHA256, tmp_path / "got", PipSettings(indexes=(html_index,)), size=SIZE)


@pytest.mark.parametrize("timeout", ["abc", "0", "-1", "nan", "inf", ""])
def test_a_timeout_that_is_no_number_of_seconds(pip_says, timeout):
    pip_says(f"global.index-url='https://x/simple'\nglobal.timeout='{timeout}'\n")
    with pytest.raises(UserError, match="pip's timeout"):
        pip_settings()
