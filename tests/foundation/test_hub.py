"""A hub that takes connections and never answers is given up soon, in one message; one that answers is used."""

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from huggingface_hub import get_session
from huggingface_hub.errors import OfflineModeIsEnabled

from infoflow.foundation import patient_hub

pytestmark = pytest.mark.slow


@pytest.fixture
def silent():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def answering():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("infoflow.foundation._errors._SECONDS_TO_CONNECT", 0.1)
    monkeypatch.setattr("infoflow.foundation._errors._SECONDS_TO_ANSWER", 0.1)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def test_a_silent_hub_is_asked_twice(impatient, silent: str) -> None:
    with patient_hub():
        for _ in range(2):
            with pytest.raises(Exception, match="timed out"):
                get_session().get(silent, timeout=100)
        with pytest.raises(OfflineModeIsEnabled, match=r"127\.0\.0\.1 does not answer"):
            get_session().get(silent)


def test_an_answer_between_begins_the_count_again(impatient, silent: str, answering: str) -> None:
    with patient_hub():
        for _ in range(3):
            with pytest.raises(Exception, match="timed out"):
                get_session().get(silent)
            assert get_session().get(answering, timeout=100).status_code == 404


def test_afterwards_the_client_is_as_before(impatient, silent: str) -> None:
    from huggingface_hub.utils import _http

    before = _http._GLOBAL_CLIENT_FACTORY
    with patient_hub():
        assert _http._GLOBAL_CLIENT_FACTORY is not before
    assert _http._GLOBAL_CLIENT_FACTORY is before
    assert "send" not in vars(get_session())


@pytest.mark.parametrize(
    ("command", "named"), [(["data", "describe", "hf:no/such"], "no/such"), (["view", "no/such", "a"], "no/such")]
)
def test_a_command_ends_in_one_message(tmp_path, silent: str, command: list[str], named: str) -> None:
    script = "from infoflow.foundation import _errors as hub; hub._SECONDS_TO_CONNECT = hub._SECONDS_TO_ANSWER = 1; "
    script += "from infoflow.cli import main; main()"
    variables = {**os.environ, "HF_ENDPOINT": silent, "HF_HUB_OFFLINE": "0", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    variables |= {"HF_HOME": str(tmp_path)}
    answer = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, env=variables, timeout=110
    )
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert named in answer.stderr
    assert "Error" not in answer.stderr
    assert len(answer.stderr.splitlines()) <= 3, answer.stderr
