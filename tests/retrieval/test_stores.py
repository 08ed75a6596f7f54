"""Passages and indexes on disk: what comes back is what was written, and nothing else is taken."""

import json
import pickle
from importlib.util import find_spec

import numpy as np
import pytest

from infoflow.foundation import UserError
from infoflow.retrieval import DenseIndex, LexicalIndex, Passages, load_index, save_index, terms_of

TEXTS = ["ada lund lives in oslo", "ben roth is a baker", "ada lund lives in oslo", "  ", "cleo ruiz is a nurse"]
ROWS = [{"title": f"t{number}", "text": text, "facts": [number, 7]} for number, text in enumerate(TEXTS)]
needs_bm25 = pytest.mark.skipif(find_spec("bm25s") is None, reason="needs bm25s")
KINDS = ["dense", pytest.param("lexical", marks=needs_bm25)]


@pytest.fixture
def passages():
    return Passages.from_rows(ROWS)


def index_of(kind, passages):
    if kind == "dense":
        return DenseIndex(np.arange(len(passages) * 2, dtype=np.float32).reshape(-1, 2))
    return LexicalIndex(terms_of(passages.texts()))


def test_passages_are_numbered_and_counted(passages):
    assert len(passages) == 4
    assert (passages.num_empty, passages.num_repeated) == (1, 1)
    assert passages[3].text == "cleo ruiz is a nurse"
    assert passages[3].facts == (4, 7)
    assert [one.id for one in passages] == [0, 1, 2, 3]
    assert passages.text_keys[0] == passages.text_keys[2] != passages.text_keys[1]
    with pytest.raises(IndexError):
        passages[-1]


def test_memory_and_disk_hold_the_same(passages, tmp_path):
    built = Passages.build(iter(ROWS), tmp_path / "built")
    passages.save(tmp_path / "saved")
    loaded = Passages.load(tmp_path / "saved")
    assert built.digest == loaded.digest == passages.digest
    assert list(built) == list(loaded) == list(passages)
    assert (loaded.num_empty, loaded.num_repeated) == (1, 1)
    assert Passages.from_rows(ROWS[:1]).digest != passages.digest


def test_more_than_one_batch(tmp_path):
    built = Passages.build((f"passage {number}" for number in range(9000)), tmp_path / "p")
    assert len(built) == 9000
    assert built[8999].text == "passage 8999"
    assert list(built.texts())[4096] == "passage 4096"


@pytest.mark.parametrize("rows", [[], ["  "], [{"title": "x"}], [{"text": 3}]])
def test_no_passage_is_told(rows):
    with pytest.raises(UserError):
        Passages.from_rows(rows)


@pytest.mark.parametrize("row", ["half \ud800", {"text": "whole", "title": "\udfff"}])
def test_half_a_character_is_told(row):
    with pytest.raises(UserError, match="Passage 1 contains half of a surrogate pair"):
        Passages.from_rows(["whole", row])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def swap(path):
    path.write_bytes(pickle.dumps({"a": 1}))


@pytest.mark.parametrize("damage", [flip, cut, swap, lambda path: path.unlink()])
def test_a_damaged_store_is_refused(passages, tmp_path, damage):
    passages.save(tmp_path / "p")
    damage(tmp_path / "p" / "passages.arrow")
    with pytest.raises(UserError, match=r"passages\.arrow"):
        Passages.load(tmp_path / "p")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 9}', '{"version": 1}', "[" * 100_000])
def test_a_damaged_description_is_refused(passages, tmp_path, text):
    passages.save(tmp_path / "p")
    (tmp_path / "p" / "passages.json").write_text(text)
    with pytest.raises(UserError):
        Passages.load(tmp_path / "p")


def test_a_folder_without_passages_is_told(tmp_path):
    with pytest.raises(UserError, match="has no passages"):
        Passages.load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_comes_back_as_it_was(passages, tmp_path, kind):
    index = index_of(kind, passages)
    save_index(index, passages, "an encoder", tmp_path / "i")
    loaded, encoder, recall = load_index(tmp_path / "i", passages, "an encoder")
    query = np.ones((1, 2), dtype=np.float32) if kind == "dense" else [["ada", "baker"]]
    assert (encoder, recall) == ("an encoder", None)
    for one, other in zip(index.search(query, 3), loaded.search(query, 3), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", [flip, cut, swap, lambda path: path.unlink()])
def test_a_damaged_index_is_refused(passages, tmp_path, kind, damage):
    save_index(index_of(kind, passages), passages, "e", tmp_path / "i")
    for path in sorted((tmp_path / "i").iterdir()):
        if path.name == "index.json":
            continue
        whole = path.read_bytes()
        damage(path)
        with pytest.raises(UserError, match=r"damaged|missing"):
            load_index(tmp_path / "i", passages)
        path.write_bytes(whole)
    load_index(tmp_path / "i", passages)


def test_an_index_of_something_else_is_refused(passages, tmp_path):
    save_index(index_of("dense", passages), passages, "new", tmp_path / "i")
    with pytest.raises(UserError, match="passage encoder"):
        load_index(tmp_path / "i", passages, "other")
    with pytest.raises(UserError, match="other passages"):
        load_index(tmp_path / "i", Passages.from_rows(["another"]), "new")
    with pytest.raises(UserError, match="as many passages"):
        save_index(DenseIndex(np.ones((2, 2))), passages, "new", tmp_path / "j")


def test_a_description_may_not_name_files_elsewhere(passages, tmp_path):
    save_index(index_of("dense", passages), passages, "e", tmp_path / "i")
    about = json.loads((tmp_path / "i" / "index.json").read_text())
    about["files"] = {"../outside": "0"}
    (tmp_path / "i" / "index.json").write_text(json.dumps(about))
    (tmp_path / "outside").write_text("x")
    with pytest.raises(UserError, match="missing"):
        load_index(tmp_path / "i", passages)
