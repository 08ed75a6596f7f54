"""Who may ask, from where, how much and how often; and what happens to requests that are late or too many."""

import json
import re
import sys
import threading

import pytest
from asking import SENTENCE, opened

pytest.importorskip("starlette", reason="the extra is not installed: make test installs it")

HOSTILE = '<img src=x onerror=a()></script><script>alert(2)"\u202e'


@pytest.fixture(scope="module")
def explorer(models):
    from infoflow.explorer import Explorer

    made = Explorer([models["masked"], models["causal"]], command="infoflow explore A B")
    yield made
    made.stop()


@pytest.fixture
def client(explorer):
    """As a browser that has visited the address."""
    from starlette.testclient import TestClient

    explorer.app._recent.clear()
    with TestClient(explorer.app, base_url=f"http://127.0.0.1:{explorer.port}", raise_server_exceptions=False) as made:
        made.get("/", params={"token": explorer.address.split("token=")[1]})
        yield made


@pytest.fixture
def stranger(explorer):
    """As one that has not."""
    from starlette.testclient import TestClient

    return TestClient(explorer.app, base_url=f"http://127.0.0.1:{explorer.port}", raise_server_exceptions=False)


def ask(client, path="/api/read", headers=None, **fields):
    return client.post(path, json={"page": "p", **fields}, headers=headers)


def test_the_first_visit_gets_a_cookie_and_an_address_without_the_token(explorer, stranger):
    token = explorer.address.split("token=")[1]
    assert len(token) >= 32
    answer = stranger.get("/", params={"token": token}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"infoflow-{explorer.port}=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("token", ["", "wrong", "é", "0" * 32])
def test_no_token_no_page(stranger, token):
    assert stranger.get("/").status_code == 401
    assert stranger.get("/", params={"token": token}).status_code == 401
    assert ask(stranger, text=SENTENCE).status_code == 401
    assert stranger.get("/api/save?key=a").status_code == 401


def test_a_cookie_of_another_explorer_is_none(explorer, stranger):
    stranger.cookies.set(f"infoflow-{explorer.port}", "x" * 32)
    assert stranger.get("/").status_code == 401
    assert stranger.get("/", headers={"cookie": "\x00=;;=,"}).status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "[::1]:80", ""])
def test_a_foreign_host(client, host):
    assert client.get("/", headers={"host": host}).status_code == 421
    assert ask(client, headers={"host": host}, text=SENTENCE).status_code == 421


def test_localhost_is_ours(client, explorer):
    assert client.get("/", headers={"host": f"localhost:{explorer.port}"}).status_code in (200, 401)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_another_site_may_not_ask(client, headers):
    assert ask(client, headers=headers, text=SENTENCE).status_code == 403


def test_its_own_page_may_ask(client, explorer):
    headers = {"origin": f"http://127.0.0.1:{explorer.port}", "sec-fetch-site": "same-origin"}
    assert ask(client, headers=headers, text=SENTENCE, want=["attention"]).status_code == 200


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", ""])
def test_a_form_is_no_question(client, kind):
    answer = client.post("/api/read", content=b'{"text": "a"}', headers={"content-type": kind})
    assert answer.status_code == 415


def test_a_long_body(client):
    assert ask(client, text="a " * 500_000).status_code == 413

    def parts():
        for _ in range(100):
            yield b"a" * 1000

    headers = {"content-type": "application/json"}
    assert client.post("/api/read", content=parts(), headers=headers).status_code == 413
    assert client.post("/api/read", content=b"{}", headers=headers | {"content-length": "x"}).status_code in (400, 413)


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 19_000,
        b'{"text": 1}',
        b'{"model": -1}',
        b'{"model": true}',
        b'{"model": 1e9}',
        b'{"want": ["everything"]}',
        b'{"want": "attention"}',
        b'{"path": "/etc/passwd"}',
        b'{"hide": [["encoder"]]}',
        b'{"hide": [["encoder", -1]]}',
        b'{"hide": [[1, 1]]}',
        b'{"close": {"heads": [["encoder", "self", 0, "0"]]}}',
        b'{"close": []}',
        b'{"close": {"all": []}}',
        b'{"sweep": "models"}',
        b'{"position": 99999999999}',
        b'{"text": "half \\ud800"}',
    ],
)
def test_what_no_page_of_ours_sends(client, given):
    answer = client.post("/api/read", content=given, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert "Traceback" not in answer.text
    assert len(answer.text) < 300


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": ""}, "is empty"),
        ({"text": "   \n"}, "is empty"),
        ({"text": "cat " * 200}, "takes at most 64|at most 128"),
        ({"text": "a", "model": 7}, "There are 2 models"),
        ({"text": SENTENCE, "hide": [["encoder", 200]]}, "counted from 0"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(client, fields, message):
    import re

    answer = ask(client, "/api/change" if "hide" in fields else "/api/read", **fields)
    assert answer.status_code == 422
    assert re.search(message, answer.json()["error"])


def test_two_thousand_characters(client):
    answer = ask(client, text="a" * 2001)
    assert answer.status_code == 400
    assert "at most 2,000" in answer.json()["error"]


def test_an_unknown_key_is_gone(client):
    assert ask(client, key="0" * 32, want=["lens"]).status_code == 404
    assert client.get("/api/save?key=../../etc/passwd").status_code == 404


def test_fifty_quick_requests(client, explorer):
    codes = [ask(client, text=SENTENCE).status_code for _ in range(50)]
    assert codes[:30] == [200] * 30
    assert codes[30:] == [429] * 20
    answer = ask(client, text=SENTENCE)
    assert 1 <= int(answer.headers["retry-after"]) <= 10
    assert client.get("/").status_code == 200


def test_every_answer_has_its_headers(client, stranger):
    answers = [
        client.get("/"),
        client.get("/nothing"),
        ask(client, text=SENTENCE, want=["attention"]),
        ask(client, text=""),
        client.get("/api/read"),
        stranger.get("/"),
        client.get("/", headers={"host": "evil.example"}),
        client.post("/api/read", content=b"x"),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
    policy = answers[0].headers["content-security-policy"]
    assert "connect-src 'self'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_hostile_text_is_data(client):
    page = client.get("/").text
    answer = ask(client, text=HOSTILE, want=["attention"])
    head, _ = opened(answer.content)
    shown = "".join(token["text"] for token in head["view"]["tokens"]["encoder"])
    assert "\u202e" not in shown
    saved = client.get(f"/api/save?key={head['key']}")
    assert saved.headers["content-disposition"].startswith('attachment; filename="explore-')
    for text in (page, saved.text):
        assert "<img src=x" not in text
        assert "<script>alert" not in text


def test_the_state_that_a_page_starts_from_survives_and_cannot_close_its_element(models):
    from starlette.testclient import TestClient

    from infoflow.explorer import Explorer

    evil = "</script><!--<script>alert('x')</script>&\u2028"
    made = Explorer([models["masked"]], sentence=evil, command=evil)
    try:
        client = TestClient(made.app, base_url=f"http://127.0.0.1:{made.port}")
        html = client.get("/", params={"token": made.address.split("token=")[1]}).text
    finally:
        made.stop()
    text = re.search('<script type="application/json" id="start">(.*?)</script>', html, re.DOTALL)[1]
    assert not set("<>&\u2028") & set(text)
    start = json.loads(text)
    assert start["text"] == start["command"] == evil


def test_the_saved_state_is_data(client):
    head, _ = opened(ask(client, text=SENTENCE).content)
    saved = client.get("/api/save", params={"key": head["key"], "state": "#;show=</script><script>alert(1)"})
    assert saved.status_code == 200
    assert "<script>alert(1)" not in saved.text


def test_a_failure_inside_is_told_without_its_traceback(client, models):
    def fails(*_):
        raise RuntimeError("secret " + SENTENCE)

    failing = models["masked"].module.register_forward_hook(fails)
    answer = ask(client, text=f"{SENTENCE} and fails", want=["lens"])
    failing.remove()
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert SENTENCE not in answer.text
    assert ask(client, text=SENTENCE, want=["attention"]).status_code == 200


def test_lines_come_one_by_one(client):
    head, _ = opened(ask(client, text=SENTENCE).content)
    answer = ask(client, key=head["key"], want=["influence"])
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["token"] for row in rows] == list(range(len(rows)))
    swept = ask(client, "/api/change", key=head["key"], sweep="heads")
    assert len(swept.text.splitlines()) == 8


def test_the_page_names_its_models(client, explorer):
    text = client.get("/").text
    data = json.loads(text.split('id="models">')[1].split("</script>")[0])
    assert [one["task"] for one in data] == ["masked-lm", "causal-lm"]
    assert explorer.address.split("token=")[1] not in text


def test_only_loopback_listens(explorer):
    assert explorer._socket.getsockname()[0] == "127.0.0.1"
    assert explorer.address.startswith(f"http://127.0.0.1:{explorer.port}/?token=")


def test_starting_and_stopping(models):
    import urllib.error
    import urllib.request

    from infoflow.explorer import explore

    before = threading.active_count()
    made = explore(models["masked"], sentence=SENTENCE)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://127.0.0.1:{made.port}/", timeout=20)
    made.stop()
    assert threading.active_count() <= before
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{made.port}/", timeout=5)
    assert repr(made).startswith("Explorer(")
    assert made.address in made._repr_html_().replace("&amp;", "&")


def test_requests_that_are_no_http_leave_no_traceback(models, caplog):
    import socket

    from infoflow.explorer import explore

    made = explore(models["masked"], sentence=SENTENCE)
    try:
        head = f"POST /api/read HTTP/1.1\r\nHost: 127.0.0.1:{made.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        for request in (head + b"zz\r\n{}\r\n0\r\n\r\n", bytes(range(256)), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", made.port), timeout=20) as link:
                    link.sendall(request)
                    link.shutdown(socket.SHUT_WR)
                    while link.recv(9999):
                        pass
    finally:
        made.stop()
    assert not [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")]


def test_models_and_ports_are_checked(models):
    import socket

    from infoflow.explorer import Explorer
    from infoflow.foundation import UserError

    with pytest.raises(UserError, match=r"one model, or two side by side\. Got 0"):
        Explorer([])
    with pytest.raises(UserError, match="Got 3"):
        Explorer([models["masked"]] * 3)
    with pytest.raises(UserError, match="must be at least 2"):
        Explorer([models["masked"]], longest=1)
    with pytest.raises(UserError, match=r"0\.\.65535"):
        Explorer([models["masked"]], port=70000)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="Choose another --port"):
            Explorer([models["masked"]], port=taken.getsockname()[1])


def test_without_the_extra(models, monkeypatch):
    from infoflow.explorer import Explorer
    from infoflow.foundation import UserError

    monkeypatch.setitem(sys.modules, "starlette", None)  # as if it could not be found
    with pytest.raises(UserError, match=r'install "h11>=.* "starlette>='):
        Explorer([models["masked"]])
