"""The file that `infoflow view` writes, without a browser."""

import base64
import errno
import html
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from infoflow.foundation import UserError
from infoflow.heads import sentence_attention
from infoflow.report import write_view

EVIL = "the </script><script>alert(1)</script> cat"


@pytest.fixture(scope="module")
def seen(matched_models):
    return sentence_attention(matched_models["translation"], EVIL, "le chat")


@pytest.fixture(scope="module")
def text(seen, tmp_path_factory):
    return write_view(seen, tmp_path_factory.mktemp("view") / "view.html").read_text(encoding="utf-8")


def unpacked(text, name, dtype):
    block = re.search(rf'<script type="text/plain" data-block="{name}">(.*?)</script>', text)
    assert block, name
    return np.frombuffer(zlib.decompress(base64.b64decode(block[1])), dtype)


def test_every_array_of_the_page_is_the_model_s(text, seen):
    for kind in seen.kinds:
        for layer in kind.layers:
            home = f"{kind.stack}/{kind.kind}/{layer.layer}"
            np.testing.assert_array_equal(unpacked(text, f"{home}/weights", np.uint8), layer.weights.ravel())
            np.testing.assert_array_equal(unpacked(text, f"{home}/norms", "<f4"), layer.value_norms.ravel())


def test_queries_and_keys_are_rounded_to_a_scale_per_head(text, seen):
    data = json.loads(re.search(r'<script type="application/json" id="view-data">(.*?)</script>', text)[1])
    for kind, stored in zip(seen.kinds, data["kinds"], strict=True):
        for layer, facts in zip(kind.layers, stored["layers"], strict=True):
            for name, vectors in (("query", layer.query), ("key", layer.key)):
                signed = unpacked(text, f"{kind.stack}/{kind.kind}/{layer.layer}/{name}", np.int8).reshape(
                    vectors.shape
                )
                scale = np.array(facts["scales"][name])[:, None, None]
                np.testing.assert_allclose(signed * scale / 127, vectors, atol=0.005 * float(scale.max()))


def test_markup_in_the_sentence_stays_text(text):
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert text.count("<script>") == policy[1].count("sha256-") > 1


def test_nothing_is_loaded(text):
    assert "default-src 'none'" in html.unescape(text)
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_a_failed_write_leaves_no_file(seen, tmp_path, monkeypatch):
    from infoflow.report import write_view

    def full(path, text, **how):
        path.write_bytes(text[:1000].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_view(seen, tmp_path / "view.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["notes.txt", "report.pdf", "view"])
def test_a_view_is_an_html_file(seen, tmp_path, name):
    with pytest.raises(UserError, match=r"--out must name an HTML file, such as view\.html\. Got"):
        write_view(seen, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_view_replaces_views_and_nothing_else(seen, tmp_path):
    path = tmp_path / "view.html"
    for _ in range(2):
        write_view(seen, path)
    path.write_text("<html>mine</html>")
    with pytest.raises(UserError, match=r"view\.html was not written by infoflow.* Move it, or choose another --out"):
        write_view(seen, path)
    assert path.read_text() == "<html>mine</html>"
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UserError, match="It is a folder"):
        write_view(seen, tmp_path / "folder.html")
