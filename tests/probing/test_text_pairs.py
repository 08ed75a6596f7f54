"""Pairs of texts from files, and BERTScore of each by layer: against the single scores, random pairs, bad files."""

import gzip
import math

import numpy as np
import pytest
from support import tiny_heads as tiny

from infoflow.foundation import SilentDisplay, UserError
from infoflow.probing import TextPairs, bert_baseline, bert_score, bert_score_tables, read_text_pairs

pytestmark = pytest.mark.slow


def written(tmp_path, text, name="pairs.tsv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.tsv", "a cat\tthe cat\t4.5\na dog\tno dog\t1\n", ()),
        ("a.tsv", "candidate\treference\tscore\na cat\tthe cat\t4.5\n\na dog\tno dog\t1\n", ()),
        ("a.tsv", "score\treference\tcandidate\n4.5\tthe cat\ta cat\n1\tno dog\ta dog\n", ()),
        ("a.tsv", "mean\tone\ttwo\n4.5\ta cat\tthe cat\n1\ta dog\tno dog\n", ("one", "two", "mean")),
        ("a.tsv", "X\t4.5\ta cat\tthe cat\nY\t1\ta dog\tno dog\n", ("3", "4", "2")),
        ("a.jsonl", '{"candidate": "a cat", "reference": "the cat", "score": 4.5}\n'
                    '{"candidate": "a dog", "reference": "no dog", "score": 1}\n', ()),
        ("a.jsonl", '{"s": "4.5", "a": "a cat", "b": "the cat"}\n{"s": 1, "a": "a dog", "b": "no dog"}\n',
         ("a", "b", "s")),
    ],
)  # fmt: skip
def test_every_form_holds_the_same_pairs(tmp_path, name, text, columns):
    pairs = read_text_pairs(written(tmp_path, text, name), columns)
    assert (pairs.candidates, pairs.references) == (("a cat", "a dog"), ("the cat", "no dog"))
    assert pairs.human == (4.5, 1.0)
    zipped = tmp_path / f"{name}.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert read_text_pairs(zipped, columns).digest == pairs.digest


def test_quotation_marks_of_pandas_are_undone(tmp_path):
    text = 'candidate\treference\n"He said ""no"" to me."\tHe said no.\nHe sat.\t"A ""cat"" sat."\n'
    pairs = read_text_pairs(written(tmp_path, text))
    assert (pairs.candidates[0], pairs.references[1]) == ('He said "no" to me.', 'A "cat" sat.')


def test_pairs_may_have_no_scores(tmp_path):
    assert read_text_pairs(written(tmp_path, "a\tb\nc\td\n")).human is None
    assert read_text_pairs(written(tmp_path, "a\tb\t1\nc\td\t2\n"), ("1", "2")).human is None


@pytest.mark.parametrize("third", ["human", "score"])
def test_scores_under_another_name_are_not_passed_over_in_silence(tmp_path, monkeypatch, third):
    notes: list[str] = []
    monkeypatch.setattr(SilentDisplay, "note", lambda _, text: notes.append(text))
    pairs = read_text_pairs(written(tmp_path, f"candidate\treference\t{third}\na\tb\t1\nc\td\t2\n"))
    assert (pairs.human is None) == (third == "human")
    assert ["human: name the one" in note for note in notes] == [True] * (third == "human")


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", (), "holds no pairs"),
        ("a\n", (), "tab-separated cells"),
        ("a\tb\nc\n", (), "line 2: 2 tab-separated cells were expected. Got 1"),
        ("a\t\n", (), "line 1: a pair has two texts. Its reference is nothing"),
        ("a\tb\tgood\n", (), "line 1: the human score must be a number"),
        ("a\tb\tnan\n", (), "must be a number"),
        ("a\tb\t1\nc\td\t\n", (), "1 of 2 pairs have no score"),
        ("a\tb\n", ("1",), "two or three"),
        ("a\tb\n", ("1", "3"), "has 2 columns"),
        ("a\tb\n", ("0", "1"), "numbered from 1"),
        ("a\tb\n", ("x", "b"), 'no column "x"'),
    ],
)
def test_files_of_another_form_are_told_of(tmp_path, text, columns, message):
    with pytest.raises(UserError, match=message):
        read_text_pairs(written(tmp_path, text), columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{\n", "line 1"), ("[1]\n", "must hold an object"), ('{"candidate": 1, "reference": "b"}\n', "two texts"),
     ('{"candidate": "a", "reference": "b", "score": true}\n', "must be a number")],
)  # fmt: skip
def test_objects_of_another_form_are_told_of(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_text_pairs(written(tmp_path, text, "a.jsonl"))


def test_files_that_are_none(tmp_path):
    with pytest.raises(UserError, match="There is no file"):
        read_text_pairs(tmp_path / "absent.tsv")
    with pytest.raises(UserError, match="Pairs are read from"):
        read_text_pairs(written(tmp_path, "a\tb\n", "a.doc"))


# -- scores -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(60)


@pytest.fixture(scope="module")
def model(corpus):
    return tiny.bert(corpus)


@pytest.fixture(scope="module")
def pairs(corpus):
    texts = [sentence.text for sentence in corpus]
    human = tuple(np.random.default_rng(0).normal(size=24).tolist())
    return TextPairs(name="own", candidates=tuple(texts[:24]), references=tuple(texts[24:48]), human=human)


def slow_means(model, pairs, layer):
    """F of each pair alone, one sentence of one pair after the other, and random pairs likewise."""
    alone = [float(bert_score(model, [a], [b], layer=layer).f[0, 0]) for a, b in zip(pairs.candidates, pairs.references,
                                                                                  strict=True)]  # fmt: skip
    random = bert_baseline(model, [*pairs.candidates, *pairs.references], pairs=40)
    return np.array(alone), float(random.f[layer])


@pytest.mark.parametrize("rescale", [False, True])
def test_means_are_those_of_single_pairs(model, pairs, rescale):
    tables = bert_score_tables(model, pairs, rescale=rescale, baseline_pairs=40)
    for layer in (0, 1, 2):
        alone, random = slow_means(model, pairs, layer)
        wanted = (alone - random) / (1 - random) if rescale else alone
        table = tables["bert_score_layers"]
        row = table[(table["layer"] == layer) & (table["score"] == "f")].iloc[0]
        assert row["value"] == pytest.approx(wanted.mean(), abs=1e-5)
        assert row["low"] <= row["value"] <= row["high"]
        assert row["random"] == pytest.approx(random, abs=1e-6)
        assert row["baseline"] == pytest.approx(0.0 if rescale else random, abs=1e-6)
        each = tables["bert_score_pairs"]
        np.testing.assert_allclose(each[each["layer"] == layer].sort_values("pair")["f"], wanted, atol=1e-5)
        agreement = tables["bert_score"]
        told = agreement[(agreement["layer"] == layer) & (agreement["score"] == "f")].set_index("labels")["value"]
        assert told["human"] == pytest.approx(np.corrcoef(alone, pairs.human)[0, 1], abs=1e-4)
        assert told["permuted"] != told["human"]


def test_batches_and_single_layers_change_nothing(model, pairs):
    whole = bert_score_tables(model, pairs, baseline_pairs=40)["bert_score_layers"]
    small = bert_score_tables(model, pairs, baseline_pairs=40, tokens_per_batch=30)["bert_score_layers"]
    np.testing.assert_allclose(whole["value"], small["value"], atol=1e-5)
    one = bert_score_tables(model, pairs, layer=1, baseline_pairs=40)["bert_score_layers"]
    assert set(one["layer"]) == {1}
    np.testing.assert_allclose(one["value"], whole[whole["layer"] == 1]["value"], atol=1e-5)


def test_equal_texts_score_one_whatever_the_scale(model, pairs):
    same = TextPairs(name="same", candidates=pairs.candidates, references=pairs.candidates)
    for rescale in (False, True):
        tables = bert_score_tables(model, same, rescale=rescale, baseline_pairs=40)
        np.testing.assert_allclose(tables["bert_score_layers"]["value"], 1, atol=1e-5)
        assert "bert_score" not in tables
        assert all(math.isnan(value) for value in tables["bert_score_pairs"]["human"])


def test_what_cannot_be_scored_is_the_users_mistake(model, pairs):
    alike = TextPairs(name="one", candidates=("a b",), references=("a b",))
    with pytest.raises(UserError, match="different sentences"):
        bert_score_tables(model, alike)
    with pytest.raises(UserError, match=r"0\.\.2"):
        bert_score_tables(model, pairs, layer=3, baseline_pairs=5)
    flat = TextPairs(name="flat", candidates=pairs.candidates, references=pairs.references, human=(1.0,) * 24)
    with pytest.raises(UserError, match="differ between pairs"):
        bert_score_tables(model, flat, baseline_pairs=5)


@pytest.mark.parametrize("columns", [(), ("1", "2")])
def test_a_header_in_another_language_is_no_pair(tmp_path, columns):
    path = written(tmp_path, "çeviri\tkaynak\n" + "The cat sleeps.\tA cat sleeps.\n" * 5)
    with pytest.raises(UserError, match="has column names in its first line"):
        read_text_pairs(path, columns)
