"""Sentences by a named column: of tables in files, of lists, frames and datasets."""

import gzip
import json
import sys

import pandas as pd
import pyarrow as pa
import pytest
from datasets import Dataset
from pyarrow import parquet

from infoflow.corpus import Corpus, load_corpus
from infoflow.foundation import UserError

PAIRS = [("a cat, a dog", 'un chat, "un" chien'), ("two birds", "deux oiseaux"), ("three fish", "trois poissons")]
FRAME = {"id": [1, 2, 3], "en": [pair[0] for pair in PAIRS], "fr": [pair[1] for pair in PAIRS]}


@pytest.fixture(
    params=["csv", "csv.gz", "tsv", "jsonl", "jsonl.gz", "ndjson", "json", "json.gz", "lines.json", "parquet"]
)
def table(request, tmp_path):
    """The three pairs in a file of each kind."""
    frame, path = pd.DataFrame(FRAME), tmp_path / f"table.{request.param}"
    kind = request.param.removesuffix(".gz")
    if kind == "parquet":
        frame.to_parquet(path)
        return path
    text = {
        "csv": lambda: frame.to_csv(index=False),
        "tsv": lambda: "\n".join("\t".join(map(str, row)) for row in [FRAME, *zip(*FRAME.values(), strict=True)]),
        "json": lambda: frame.to_json(orient="records", indent=1),
    }.get(kind, lambda: frame.to_json(orient="records", lines=True))()
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def pairs(corpus):
    return [(sentence.text, sentence.translation) for sentence in corpus]


def test_a_named_column_of_every_kind_of_table(table):
    assert pairs(load_corpus(table, text_column="en", translation_column="fr")) == PAIRS
    assert [sentence.text for sentence in load_corpus(str(table), text_column="fr")] == [pair[1] for pair in PAIRS]
    assert load_corpus(table, text_column="en").columns == {"text"}


def test_a_table_without_a_named_column_is_refused_with_its_columns(table):
    with pytest.raises(UserError, match=r"name the column of its sentences[^\n]*\n[^\n]*id, en, fr[^\n]*--text-column"):
        load_corpus(table)
    with pytest.raises(UserError, match=r"name the column of its sentences[^\n]*\n[^\n]*id, en, fr"):
        load_corpus(table, translation_column="fr")
    with pytest.raises(UserError, match=r"has no column de\.\n[^\n]*id, en, fr\. Name the column[^\n]*text_column="):
        load_corpus(table, text_column="de")
    with pytest.raises(UserError, match=r"two columns\. Got en for both"):
        load_corpus(table, text_column="en", translation_column="en")


def test_a_column_of_numbers_is_refused(table):
    with pytest.raises(UserError, match=r"column id: holds \d+, not text|has numbers in the column id"):
        load_corpus(table, text_column="id")


def test_equal_content_is_equal_however_it_comes(table):
    expected = Corpus.from_sentences(PAIRS).digest
    assert load_corpus(table, text_column="en", translation_column="fr").digest == expected


@pytest.mark.parametrize(
    "source",
    [
        PAIRS,
        tuple(PAIRS),
        [list(pair) for pair in PAIRS],
        pytest.param(lambda: pd.DataFrame(FRAME), id="pandas"),
        pytest.param(lambda: Dataset.from_dict(FRAME), id="dataset"),
    ],
)
def test_what_is_in_memory(source):
    source = source() if callable(source) else source
    named = {} if isinstance(source, list | tuple) else {"text_column": "en", "translation_column": "fr"}
    corpus = load_corpus(source, **named)
    assert pairs(corpus) == PAIRS
    assert corpus.digest == Corpus.from_sentences(PAIRS).digest


def test_a_frame_of_polars_is_known_by_its_module(monkeypatch):
    """polars is no dependency: a class that says it is from there, with the same way to its columns."""

    class DataFrame(dict):
        __module__ = "polars.dataframe.frame"
        columns = tuple(FRAME)

    assert pairs(load_corpus(DataFrame(FRAME), text_column="en", translation_column="fr")) == PAIRS
    assert "polars" not in sys.modules


def test_sentences_alone_and_missing_ones():
    assert [s.text for s in load_corpus([" one ", "", None, "two"])] == ["one", "two"]
    frame = pd.DataFrame({"text": ["one", None, float("nan"), pd.NA, "two"]})
    assert [s.text for s in load_corpus(frame)] == ["one", "two"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "has no sentence"),
        ([["a", "b"], "c"], "all pairs"),
        (["c", ("a", "b")], "all pairs"),
        ([("a", "b", "c")], "a pair has two entries"),
        (["one", 2], "sentences, 2: holds 2, not text"),
        (["one", "a\x00b"], "zero byte"),
        (["one", "a\ud800b"], "surrogate"),
        (["x" * (2**20 + 1)], "characters. A sentence may have"),
        (iter(["one"]), "a list of sentences"),
        (b"one", "a list of sentences"),
        ({"text": ["one"]}, "a list of sentences"),
        (3, "Got 3"),
        (None, "Got nothing"),
        ("", "No corpus was named"),
    ],
)
def test_what_is_no_corpus(source, message):
    with pytest.raises(UserError, match=message):
        load_corpus(source)


@pytest.mark.parametrize("source", ["grammar", "grammar:5", "tatoeba-en-fr", "lines.txt", ["one"]])
def test_columns_named_in_vain(source, write, monkeypatch, tmp_path):
    write("lines.txt", "one\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="has no columns"):
        load_corpus(source, text_column="text")


def test_two_aligned_files_are_no_tables(write):
    source, target = write("t.csv", "a\n"), write("u.csv", "b\n")
    with pytest.raises(UserError, match="into one table"):
        load_corpus(f"{source},{target}")
    with pytest.raises(UserError, match="No corpus"):
        load_corpus(f"{source}x.csv", text_column="text")


def test_tab_separated_pairs_need_no_header(write):
    assert pairs(load_corpus(write("a.tsv", "one\tun\ntwo\tdeux\n"))) == [("one", "un"), ("two", "deux")]
    with pytest.raises(UserError, match="name the column of its sentences"):
        load_corpus(write("b.tsv", "source\ttarget\none\tun\n"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\none\n", "line 2: expected 2 cells"),
        ("a.csv", 'text,label\n"one,1\n', "not CSV"),
        ("a.csv", 'text,label\n"one"x,1\n', "not CSV"),
        ("a.csv", 'text,label\n"' + "one " * 40_000 + '",1\n', "not CSV"),
        ("a.csv", "text,text\none,two\n", "several columns called text"),
        ("a.csv", "text\nx\x00y\n", "zero byte"),
        ("a.csv", b"text\n\xff\n", "not UTF-8"),
        ("a.csv", "", r"Its columns: \(none\)"),
        ("a.csv", "text,label\n", "has no sentence"),
        ("a.jsonl", '{"text": "one"}\n{"text": 2}\n', "a.jsonl, 2, column text: holds 2, not text"),
        ("a.jsonl", '{"text": "one"}\n["two"]\n', "an object"),
        ("a.jsonl", '{"text": "one"}\n{"text": \n', "line 2: not JSON"),
        ("a.jsonl", '{"text": "a\\u0000b"}\n', "zero byte"),
        ("a.jsonl", '{"text": "a\\ud800b"}\n', "surrogate"),
        ("a.jsonl", '{"text": ' + "9" * 5000 + "}\n", "line 1: not JSON"),
        ("a.jsonl", '{"text": ' + "[" * 100_000 + "\n", "too deep|not JSON"),
        ("a.json", '{"text": ' + "[" * 100_000 + "\n", "too deep|not JSON"),
        ("a.json", "[" * 2000 + "]" * 2000, "too deep|an object"),
        ("a.json", '{"a": [], "b": []}', "a list of objects"),
        ("a.json", '"text"', "a list of objects"),
        ("a.json", "[1, 2]", "an object"),
        ("a.json", b"\xff\xfe[]", "not UTF-8"),
        ("a.json", "", "not JSON"),
        ("a.parquet", "PAR1 nonsense PAR1", "not a Parquet file"),
        ("a.parquet", "", "not a Parquet file"),
    ],
)  # fmt: skip
def test_damaged_tables(write, name, content, message):
    with pytest.raises(UserError, match=message):
        load_corpus(write(name, content), text_column="text")


def test_keys_inside_objects_and_missing_ones(write):
    lines = [{"translation": {"en": "one", "fr": "un"}}, {"translation": None}, {"translation": {"en": "two"}}]
    path = write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert pairs(load_corpus(path, text_column="translation.en", translation_column="translation.fr")) == [
        ("one", "un")
    ]
    assert [s.text for s in load_corpus(path, text_column="translation.en")] == ["one", "two"]


def test_a_struct_of_parquet(tmp_path):
    table = pa.table({"translation": [{"en": "one", "fr": "un"}], "image": [b"\x00"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    corpus = load_corpus(tmp_path / "a.parquet", text_column="translation.en", translation_column="translation.fr")
    assert pairs(corpus) == [("one", "un")]


def test_a_large_json_document_is_refused(write, monkeypatch):
    monkeypatch.setattr("infoflow.corpus._tables.LARGEST_JSON", 10)
    with pytest.raises(UserError, match="one object per line"):
        load_corpus(write("a.json", '[{"text": "one"}]'), text_column="text")


def test_a_cut_or_flipped_parquet_file_is_told_or_read(tmp_path):
    pd.DataFrame({"text": [f"sentence {i}" for i in range(500)]}).to_parquet(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    told = 0
    for place in range(0, len(whole), max(len(whole) // 60, 1)):
        (tmp_path / "b.parquet").write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        try:
            load_corpus(tmp_path / "b.parquet", text_column="text")
        except UserError:
            told += 1
    assert told > 5
