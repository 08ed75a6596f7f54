"""`infoflow explore`."""

import re
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from http.cookiejar import CookieJar

import pytest
from support.processes import marked_environment

pytestmark = pytest.mark.slow


pytest.importorskip("starlette", reason='the extra is not installed: pip install "infoflow[explore]"')


@pytest.fixture(scope="module")
def folder(matched_models, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "bert-tiny"
    model = matched_models["masked-lm"]
    model.module.save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one model, or two side by side. Got 0"),
        (["a", "b", "c"], "one model, or two side by side. Got 3"),
        (["FOLDER", "--host=example.org"], "add --insecure"),
        (["FOLDER", "--port=99999"], "--port must be a number in 0..65535"),
        (["FOLDER", "--longest=1"], "must be at least 2"),
        (["FOLDER", "--port=1.5"], "--port must be a whole number"),
        (["FOLDER", "--longest=1.5"], "--longest must be a whole number"),
    ],
)
def test_a_mistake_gets_one_message(infoflow, folder, arguments, message):
    answer = infoflow("explore", *(folder if one == "FOLDER" else one for one in arguments), "--log=plain")
    assert answer.code == 2
    assert message in answer.err


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_it_computes_ends_it_in_order(folder, tmp_path, stop):
    command = [sys.executable, "-m", "infoflow", "explore", str(folder), "--sentence=the cat", "--log=plain"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=marked_environment(tmp_path), cwd=tmp_path, **pipes) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            page = opener.open(address[0], timeout=60)
            assert "?token" not in page.url
            assert "bert-tiny" in page.read().decode()
            asking = threading.Thread(target=_ask, args=(opener, page.url))
            asking.start()
            process.send_signal(stop)
            out, err = process.communicate(timeout=60)
            asking.join()
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Stopped." in out
    assert "Traceback" not in err
    assert "token" not in err


def _ask(opener, url):
    request = urllib.request.Request(
        f"{url}api/read", b'{"text": "the old cat sees the dog", "want": ["attention", "lens"]}'
    )
    request.add_header("content-type", "application/json")
    with suppress(OSError):  # it may be stopped before it can answer
        opener.open(request, timeout=30).read()
