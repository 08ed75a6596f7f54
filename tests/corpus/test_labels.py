"""Labels of whole sentences, minimal pairs, features of CoNLL-U, a test part of its own."""

import pandas as pd
import pytest
from datasets import ClassLabel, Dataset

from infoflow.corpus import Corpus, generate_grammar, load_corpus
from infoflow.foundation import UserError


def test_labelled_lines(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("x\ta dog\n\ny\ta cat\n\tno class\n")
    corpus = Corpus.from_labelled(path)
    assert [(s.text, s.label) for s in corpus] == [("a dog", "x"), ("a cat", "y"), ("no class", None)]
    path.write_text("a dog\t7\tx\n")
    assert Corpus.from_labelled(path, columns=(-1, 1))[0].label == "x"
    path.write_text("x\ta dog\nalone\n")
    with pytest.raises(UserError, match=r"line 2: 2 tab-separated columns are needed\. Got 1"):
        Corpus.from_labelled(path)


def test_minimal_pairs_are_the_last_columns(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("set\tfield\tagreement\tdogs bark\tdogs barks\n")
    sentence = Corpus.from_minimal_pairs(path)[0]
    assert (sentence.text, sentence.bad, sentence.label) == ("dogs bark", "dogs barks", "agreement")
    path.write_text("dogs bark\tdogs barks\n")
    with pytest.raises(UserError, match="3 tab-separated columns are needed"):
        Corpus.from_minimal_pairs(path)
    assert Corpus.from_minimal_pairs(path, columns=(1, 2)).columns == {"text", "bad"}


def test_labels_of_tables_frames_and_datasets(tmp_path):
    frame = pd.DataFrame({"t": ["a dog", "a cat"], "l": [0, 1], "b": ["a dogs", "a cats"]})
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    corpora = [
        load_corpus(tmp_path / f"a.{kind}", text_column="t", label_column="l", bad_column="b")
        for kind in ("jsonl", "csv", "parquet")
    ]
    corpora += [load_corpus(frame, text_column="t", label_column="l", bad_column="b")]
    dataset = Dataset.from_pandas(frame)
    corpora += [Corpus.from_dataset(dataset, "t", label="l", bad="b")]
    for corpus in corpora:
        assert [(s.text, s.label, s.bad) for s in corpus] == [("a dog", "0", "a dogs"), ("a cat", "1", "a cats")]
    named = dataset.cast_column("l", ClassLabel(names=["no", "yes"]))
    assert [s.label for s in Corpus.from_dataset(named, "t", label="l")] == ["no", "yes"]
    with pytest.raises(UserError, match="has no column z"):
        load_corpus(tmp_path / "a.csv", text_column="t", label_column="z")
    assert [s.label for s in Corpus.from_frame(frame.assign(l=[0.5, 1.0]), "t", label="l")] == ["0.5", "1.0"]
    with pytest.raises(UserError, match=r"a label must be text or a number\. Got inf"):
        Corpus.from_frame(frame.assign(l=[0.5, float("inf")]), "t", label="l")
    with pytest.raises(UserError, match=r"a label must be text or a number\. Got \[1\]"):
        Corpus.from_frame(frame.assign(l=[[1], [2]]), "t", label="l")


def test_a_file_of_labels_must_have_one_for_each_sentence(tmp_path):
    corpus, path = generate_grammar(num=5), tmp_path / "labels.txt"
    path.write_text("a\nb\na\nb\n\n")
    labelled = corpus.with_labels(path)
    assert [s.label for s in labelled] == ["a", "b", "a", "b", None]
    assert [s.words for s in labelled] == [s.words for s in corpus]
    path.write_text("a\nb\n")
    with pytest.raises(UserError, match=r"one label for each sentence of grammar, 5\. Got 2"):
        corpus.with_labels(path)
    with pytest.raises(UserError, match="already has labels"):
        labelled.with_labels(["x"] * 5)


def test_features_become_columns(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("1\tdogs\tdog\tNOUN\tNNS\tCase=Nom|Number=Plur\t0\troot\t_\tEntity=(e1)\n")
    corpus = Corpus.from_conllu(path, misc=("Entity",), feats=("Number", "Gender"))
    assert corpus[0].tags == {
        "lemma": ["dog"],
        "xpos": ["NNS"],
        "entity": ["(e1)"],
        "number": ["Plur"],
        "gender": ["_"],
    }
    with pytest.raises(UserError, match="Two columns would be called number"):
        Corpus.from_conllu(path, misc=("number",), feats=("Number",))


def test_a_test_part_keeps_what_both_know():
    train, test = generate_grammar(num=3), Corpus.from_sentences(["a dog", "a cat"])
    both = train.with_test(test)
    assert both.columns == {"text", "part"}
    assert [s.part for s in both] == ["train"] * 3 + ["test"] * 2
    assert list(train.with_test(generate_grammar(num=2, seed=1)).column("head"))[:3] == list(train.column("head"))
