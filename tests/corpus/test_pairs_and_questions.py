"""Pairs of texts, and questions with choices, beside the labels of a corpus."""

import json

import pandas as pd
import pytest
from datasets import Dataset

from infoflow.corpus import WHOLE_COLUMNS, Corpus, load_corpus, repeated, table_columns, tag_columns
from infoflow.foundation import UserError
from infoflow.probing import tasks

QUESTION = {"turns": ["M: a dog?", "W: a cat."], "q": "What?", "c": ["a dog", "a cat"], "a": 1}


def test_pairs_of_a_labelled_file(write):
    path = write("a.tsv", "NEUTRAL\t4.5\ta dog\ta cat\n\nENTAILMENT\t2\tthe dog\tthe cat\nNEUTRAL\t1\tno second\t \n")
    corpus = Corpus.from_labelled(path, columns=(1, 3, 4))
    assert corpus.columns == {"text", "second", "label"}
    assert [(s.label, s.text, s.second) for s in corpus] == [
        ("NEUTRAL", "a dog", "a cat"),
        ("ENTAILMENT", "the dog", "the cat"),
    ]
    assert [s.label for s in Corpus.from_labelled(path, columns=(2, 3, 4))] == ["4.5", "2"]
    assert corpus.digest != Corpus.from_labelled(path, columns=(1, 4, 3)).digest
    with pytest.raises(UserError, match=r"line 1: 5 tab-separated columns are needed\. Got 4"):
        Corpus.from_labelled(path, columns=(1, 3, 5))


def test_questions_of_tables_frames_and_datasets(tmp_path):
    frame = pd.DataFrame([QUESTION, {**QUESTION, "a": 0}])
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "a.parquet")
    named = {"text": "turns", "question": "q", "choices": "c", "label": "a"}
    columns = {f"{name}_column": column for name, column in named.items()}
    corpora = [load_corpus(tmp_path / f"a.{kind}", **columns) for kind in ("jsonl", "parquet")]
    corpora += [load_corpus(frame, **columns), load_corpus(Dataset.from_pandas(frame), **columns)]
    for corpus in corpora:
        first = corpus[0]
        assert (first.text, first.question, first.label) == ("M: a dog? W: a cat.", "What?", "1")
        assert list(first.choices) == ["a dog", "a cat"]
        assert corpus[1].label == "0"
    assert len({corpus.digest for corpus in corpora[:3]}) == 1
    assert table_columns(tmp_path / "a.jsonl") == ["turns", "q", "c", "a"]
    with pytest.raises(UserError, match="not text"):  # without a question a list is no text
        load_corpus(tmp_path / "a.jsonl", text_column="turns")


def test_second_texts_of_tables_frames_and_datasets(tmp_path):
    frame = pd.DataFrame({"one": ["a dog", "a cat", "a house"], "two": ["the dog", "", None], "l": [1, 2, 3]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    columns = {"text_column": "one", "second_column": "two", "label_column": "l"}
    for source in (tmp_path / "a.csv", frame, Dataset.from_pandas(frame)):
        corpus = load_corpus(source, **columns)
        assert [(s.text, s.second, s.label) for s in corpus] == [("a dog", "the dog", "1")]  # half a pair is none
    with pytest.raises(UserError, match="has no column three"):
        load_corpus(tmp_path / "a.csv", **{**columns, "second_column": "three"})


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ("a dog", 'expected a list of texts. Got "a dog"'),
        (["a", " "], "a list with a blank text"),
        ([1], "not text"),
        (None, "Got nothing"),
    ],
)
def test_choices_are_lists_of_texts(tmp_path, choices, message):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({**QUESTION, "c": choices}))
    with pytest.raises(UserError, match=message):
        Corpus.from_table(path, text="turns", question="q", choices="c")


def test_what_is_beside_a_text_is_no_tag_of_its_words():
    rows = {"words": [["a", "dog"]], "tag": [["DET", "NOUN"]], "second": ["a cat"], "question": ["What?"], "l": ["x"]}
    dataset = Dataset.from_dict({**rows, "choices": [["a dog", "a cat"]]})
    named = {"second": "second", "question": "question", "choices": "choices", "label": "l"}
    corpus = Corpus.from_dataset(dataset, text=None, words="words", tags=("tag",), **named)
    assert tag_columns(corpus) == ["tag"]
    assert {"second", "question", "choices"} <= WHOLE_COLUMNS
    assert "tag" in {task.name for task in tasks(corpus)}
    assert not {"second", "question", "choices"} & {task.name for task in tasks(corpus)}
    assert corpus[0].tags == {"tag": ["DET", "NOUN"]}


def test_old_corpora_keep_their_digests(write):
    """As of the version before there were pairs: caches and results are found again."""
    labelled = Corpus.from_labelled(write("l.tsv", "x\ta dog\n\ny\ta cat\n\tno class\n"))
    table = write("m.jsonl", '{"t":"a dog","l":1,"b":"a dogs"}\n{"t":"a cat","l":0,"b":"a cats"}\n')
    assert labelled.digest == "20be59e3f485fdf8"
    assert Corpus.from_table(table, text="t", label="l", bad="b").digest == "b445f70e882010ac"
    assert Corpus.from_table(table, text="t").digest == "7a0ce0495ccd270f"


def test_old_corpora_keep_their_caches(write, cache, monkeypatch):
    monkeypatch.setattr("infoflow.corpus._store.BATCH", 2)  # also corpora of two sentences are kept in files
    Corpus.from_labelled(write("l.tsv", "x\ta dog\n\ny\ta cat\n\tno class\n"))
    table = write("m.jsonl", '{"t":"a dog","l":1,"b":"a dogs"}\n{"t":"a cat","l":0,"b":"a cats"}\n')
    Corpus.from_table(table, text="t", label="l", bad="b")
    kept = {folder.name for folder in (cache / "corpora").iterdir()}
    assert {"a3d0c094cabae850", "ba6e43c99d0e478e"} <= kept, kept


def test_repeated_texts_are_counted_once():
    others = ["a dog sees a cat", "the house"]
    texts = ["A dog  sees a cat", "a dog sees a cat", "a dog sees the cat", "the horse", "the house"]
    assert repeated(texts, lambda: iter(others)) == (4, 2, 3)
    assert repeated(iter(texts), lambda: ()) == (4, 0, 0)
