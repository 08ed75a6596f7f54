"""Tasks from files of every known layout, their parts, and one clear message for what is wrong."""

import gzip
import inspect
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Sequence

from infoflow.adaptation import Choice, Classification, Tagging, load_task, make_task
from infoflow.corpus import Corpus
from infoflow.foundation import UserError, use_display

DATA = Path(__file__).parents[3] / "shared" / "data"


class Notes:
    """A display that keeps what it is told."""

    def __init__(self):
        from infoflow.foundation import SilentDisplay

        self.silent, self.said = SilentDisplay(), []

    def note(self, text):
        self.said.append(text)

    def __getattr__(self, name):
        return getattr(self.silent, name)


@pytest.fixture
def notes():
    display = Notes()
    with use_display(display):
        yield display.said


@pytest.fixture
def write(tmp_path):
    def write(name, *lines):
        path = tmp_path / name
        data = "".join(f"{line}\n" for line in lines)
        path.write_bytes(gzip.compress(data.encode()) if name.endswith(".gz") else data.encode())
        return path

    return write


def parts(path):
    return {"train": path, "dev": path, "test": path}


def test_label_and_text(write):
    path = write("a.tsv.gz", "x\ta dog", "y\ta cat", "x\ta house", "\tno label")
    data = load_task("t", **parts(path))
    assert (data.shape, data.labels, len(data.train)) == ("classification", ("x", "y"), 3)
    assert data.left_out == {"train: without a label": 1, "dev: without a label": 1, "test: without a label": 1}
    assert make_task(data) == Classification(task="t", labels=("x", "y"))
    assert make_task(data, main="macro_f1").main == "macro_f1"
    assert load_task("t", **parts(path), labels=("y", "x")).labels == ("y", "x")
    with pytest.raises(UserError, match=r"has no option column\. Its options: task, labels, multi, main"):
        make_task(data, column="tag")


def test_pairs_and_the_two_labels_of_sick(write):
    pairs = write("pairs.tsv", "1\ta dog\ta cat", "0\tthe dog\tthe dog")
    data = load_task("t", **parts(pairs))
    assert [(s.text, s.second, s.label) for s in data.dev] == [("a dog", "a cat", "1"), ("the dog", "the dog", "0")]
    assert data.labels == ("1", "0")
    sick = write("sick.tsv", "NEUTRAL\t4.5\ta dog\ta cat", "ENTAILMENT\t2.5\tthe dog\tthe cat")
    assert load_task("t", **parts(sick)).labels == ("NEUTRAL", "ENTAILMENT")
    related = load_task("t", **parts(sick), shape="regression")
    assert (related.shape, related.labels) == ("regression", ())
    assert [(s.text, s.second, s.label) for s in related.test] == [
        ("a dog", "a cat", "4.5"),
        ("the dog", "the cat", "2.5"),
    ]
    assert (make_task(related).mean, make_task(related).deviation) == (3.5, 1.0)


def test_columns_by_number_and_several_labels(write):
    path = write(
        "hoc.tsv", "doc1\t\ta dog", "doc1\tx|y\ta cat", "doc2\t\ta house", "doc2\ty\tthe dog", "doc2\t\tthe cat"
    )
    data = load_task("t", **parts(path), label=2, text=3, multi=True)
    assert (data.labels, len(data.train), data.left_out) == (("x", "y"), 5, {})
    assert make_task(data).multi
    with pytest.raises(UserError, match=r"an unknown layout: 3 tab-separated columns, most lines with a blank"):
        load_task("t", **parts(path))
    with pytest.raises(
        UserError,
        match=r"Only the columns of label, text and second text can be given by number.* Got label=1, text=name",
    ):
        load_task("t", **parts(path), label=1, text="name")
    with pytest.raises(UserError, match=r"(?s)Got label=1, text=name.*the command --label-column 1 --text-column 2"):
        load_task("t", **parts(path), label="1", text="name")


def test_digits_are_numbers_unless_the_first_line_has_them_as_names(write):
    """Commands and plans write both as text."""

    def read(path, **columns):
        return [(one.label, one.text, one.second) for one in load_task("t", **parts(path), **columns).train]

    lines = ("doc1\tx\ta dog\ta house", "doc1\ty\ta cat\tthe dog")
    wanted = [("x", "a dog", None), ("y", "a cat", None)]
    for name in ("a.tsv.gz", "a.txt", "a"):
        assert read(write(name, *lines), label="2", text="3") == wanted
    pairs = [("x", "a dog", "a house"), ("y", "a cat", "the dog")]
    assert read(write("b.tsv", *lines), label="2", text="3", second="4") == pairs
    digits = write("c.tsv", "0\ta dog", "1\ta cat")
    assert read(digits, label="1", text="2") == [("0", "a dog", None), ("1", "a cat", None)]
    places = write("d.tsv", "1\t2\ta dog", "2\t1\ta cat")
    assert read(places, label="2", text="3") == [("2", "a dog", None), ("1", "a cat", None)]
    assert read(write("e.tsv", "0\t1", "x\ta dog", "y\ta cat"), label="0", text="1") == wanted
    assert read(write("f.tsv", "2019\ttext", "x\ta dog", "y\ta cat"), label="2019", text="text") == wanted
    assert read(write("g.csv", "1,0", "x,a dog", "y,a cat"), label="1", text="0") == wanted
    with pytest.raises(UserError, match="Columns count from 1, as in cut -f"):
        read(digits, label="0", text="1")
    with pytest.raises(UserError, match=r"h\.tsv, line 1: 8 tab-separated columns are needed. Got 4"):
        read(write("h.tsv", *lines), label="1", text="8")
    named = write("i.tsv", "label\ttext", "x\ta dog", "y\ta cat")
    with pytest.raises(UserError, match=r"The first line of \S+i\.tsv has names: label, text\.\nUse these names"):
        read(named, label="0", text="1")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["x\ta dog", "y\ta cat", "x\ta\thouse"], r"a\.tsv, line 3: 2 tab-separated columns are needed, .* Got 3"),
        (["x\ta dog", "y\ta cat", "x a house"], r"a\.tsv, line 3: 2 tab-separated columns are needed. Got 1"),
        (["x\ta dog\tb", "y\ta cat\tb", "x\ta house"], r"a\.tsv, line 3: 3 tab-separated columns are needed. Got 2"),
        (["N\t4.5\ta\tb", "E\t2.5\tc\td", "N"], r"a\.tsv, line 3: 4 tab-separated columns are needed. Got 1"),
    ],
)
def test_a_line_of_another_width_is_named(write, lines, message):
    with pytest.raises(UserError, match=message):
        load_task("t", **parts(write("a.tsv", *lines)))


def test_blank_columns_behind_the_others_are_no_columns(write):
    data = load_task("t", **parts(write("a.tsv", "x\ta dog\t", "y\ta cat", "x\ta house")))
    assert len(data.train) == 3


def test_examples_without_a_label_are_told(write, notes):
    load_task("t", **parts(write("a.tsv", "x\ta dog", "y\ta cat", "\ta house")))
    assert notes == ["a.tsv: 1 examples without a label were left out."] * 3


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_examples_that_annotators_did_not_agree_on_have_no_label(write, notes, ending):
    columns = ("gold_label", "sentence1", "sentence2")
    rows = [("neutral", "a dog", "a cat"), ("-", "a house", "a cat"), ("entailment", "a big dog", "a dog")]
    lines = ["\t".join(row) for row in (columns, *rows)]
    if ending == "jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    path = write(f"snli.{ending}", *lines)
    data = load_task("t", **parts(path))
    assert (data.labels, len(data.train), data.left_out["test: without a label"]) == (("neutral", "entailment"), 2, 1)
    assert notes[0] == f"snli.{ending}: 1 examples without a label were left out."
    signs = load_task("t", **parts(write("signs.tsv", "+\ta dog", "-\ta cat")))
    assert signs.labels == ("+", "-")


def test_the_text_to_write_is_named_as_a_label_is(write):
    path = write("a.jsonl", *(json.dumps({"input": f"a {word}", "output": word}) for word in ("dog", "cat", "house")))
    data = load_task("t", **parts(path), shape="generation", text="input", label="output")
    assert list(data.train.column("translation")) == ["dog", "cat", "house"]
    with pytest.raises(UserError, match=r"Name its columns: label= \(--label-column\)\."):
        load_task("t", **parts(path), shape="generation", text="input")
    with pytest.raises(
        UserError,
        match=r"its column names do not show which one has the texts: input, output\.\nName it, .*--text-column",
    ):
        load_task("t", **parts(path), shape="generation")


def test_words_and_tags(write):
    path = write("ner.tsv", "a\tO", "Dog\tB-X", "", "the\tO", "big\tB-X", "dog\tI-X")
    data = load_task("t", **parts(path))
    assert (data.shape, data.labels, len(data.train)) == ("tagging", ("O", "B-X", "I-X"), 2)
    assert make_task(data) == Tagging(task="t", labels=("O", "B-X", "I-X"), column="tag")
    trees = write(
        "a.conllu",
        "1\ta\ta\tDET\tDT\t_\t2\tdet\t_\t_",
        "2\tdog\tdog\tNOUN\tNN\t_\t0\troot\t_\t_",
        "",
        "1\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_",
    )
    data = load_task("t", **parts(trees))
    assert data.labels == ("DET", "NOUN", "VERB")
    assert make_task(data).column == "upos"
    fine = load_task("t", **parts(trees), tags="xpos")
    assert fine.labels == ("DT", "NN", "VB")
    assert make_task(fine).column == "xpos"
    with pytest.raises(UserError, match=r"has no tags \"ner\"\. Its tags: upos, deprel, xpos"):
        load_task("t", **parts(trees), tags="ner")


def test_words_and_tags_of_a_data_set(write):
    rows = {"tokens": [["a", "Dog"], ["go"]], "ner": [[0, 1], [0]], "pos": [["D", "N"], ["V"]]}
    dataset = Dataset.from_dict(rows).cast_column("ner", Sequence(ClassLabel(names=["O", "B-X"])))
    data = load_task("t", **parts(dataset), words="tokens", tags="ner")
    assert (data.shape, data.labels, make_task(data).column) == ("tagging", ("O", "B-X"), "ner")
    assert list(data.train.column("words")) == rows["tokens"]
    wrong = r"words and tags name the columns of words and their tags in a data set.* Got words=tokens"
    for source, more in (
        (dataset, {}),
        (dataset, {"text": "x", "tags": "ner"}),
        (write("a.tsv", "a\tO"), {"tags": "ner"}),
    ):
        with pytest.raises(UserError, match=wrong):
            load_task("t", **parts(source), words="tokens", **more)


def test_conll_2003_and_other_words_with_tags(write):
    lines = ("-DOCSTART- -X- -X- O", "", "EU NNP B-NP B-ORG", "rejects VBZ B-VP O", "", "Peter NNP B-NP B-PER")
    data = load_task("t", **parts(write("ner.conll", *lines)))
    assert (data.shape, data.labels, len(data.train)) == ("tagging", ("B-ORG", "O", "B-PER"), 2)
    chunks = load_task("t", **parts(write("ner.conll.gz", *lines)), tags="tag_2")
    assert chunks.labels == ("B-NP", "B-VP")
    two = load_task("t", **parts(write("two.conll", "a\tO", "Dog\tB-X", "", "a b\tO")))
    assert list(two.train.column("words")) == [["a", "Dog"], ["a b"]]
    with pytest.raises(UserError, match=r"line 6: expected a word and 3 tag\(s\)"):
        load_task("t", **parts(write("ner.conll", *lines[:-1], "Peter NNP B-PER")))


def test_a_part_that_is_no_file(tmp_path):
    with pytest.raises(UserError, match=r"a file with labelled examples\. .* is a folder"):
        load_task("t", train=tmp_path)
    with pytest.raises(
        UserError, match=r"No file .*train\.tsv \(current folder: .*\)\.\nName a file with labelled examples"
    ):
        load_task("t", train=str(tmp_path / "train.tsv"))
    for name in ("x" * 300, "x" * 300 + ".tsv"):
        with pytest.raises(UserError, match=r"No file xxx.* \(current folder: "):
            load_task("t", train=name)
    with pytest.raises(UserError, match=r"No corpus nothing"):
        load_task("t", train="nothing")


def test_examples_that_are_all_empty(write):
    path = write("a.jsonl", *(json.dumps({"source": f"a {word}", "target": " "}) for word in ("dog", "cat")))
    with pytest.raises(
        UserError, match=r"needs text and translation\. In a\.jsonl none of 2 examples has all of these"
    ):
        load_task("t", train=path, shape="generation")
    asked = {"qas": [{"id": "1", "question": "Who?", "answers": [{"text": " ", "answer_start": 0}]}]}
    (path.parent / "a.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "A dog.", **asked}]}]}))
    with pytest.raises(UserError, match=r"needs text, question and answers\. In a\.json none of 1"):
        load_task("t", train=path.parent / "a.json")


def test_the_line_of_the_file_is_named_where_a_label_is_no_number(write):
    lines = [f"{number}.5\tword {number} of {number * 7}" for number in range(40)]
    lines[3], lines[22] = "\tno label", "nan\tword"
    with pytest.raises(UserError, match=r'a\.tsv, example 23, has "nan"'):
        load_task("t", train=write("a.tsv", *lines), shape="regression")


def test_tables_by_usual_and_given_names(write):
    rows = [{"premise": "a dog", "hypothesis": "a cat", "label": 0}, {"premise": "a", "hypothesis": "b", "label": 1}]
    path = write("a.jsonl", *map(json.dumps, rows))
    data = load_task("t", **parts(path))
    assert (data.shape, data.labels) == ("classification", ("0", "1"))
    assert [(s.text, s.second) for s in data.test] == [("a dog", "a cat"), ("a", "b")]
    odd = write("b.csv", "what,which", "a dog,x", "a cat,y")
    assert load_task("t", **parts(odd), text="what", label="which").labels == ("x", "y")
    with pytest.raises(UserError, match=r"its column names do not show which one has the texts: what, which"):
        load_task("t", **parts(odd))
    header = write("c.tsv", "sentence\tlabel", "a dog\tx", "a cat\ty")
    assert [(s.text, s.label) for s in load_task("t", **parts(header)).dev] == [("a dog", "x"), ("a cat", "y")]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("label\ttweet", "the texts: label, tweet"),
        ("Label\tThe tweet", "the texts: Label, The tweet"),
        ("text\tmood", "the labels: text, mood"),
        ("id\tmood\tsentence", "the labels: id, mood, sentence"),
    ],
)
def test_a_header_that_is_half_known_is_no_example(write, header, message):
    rows = [["x", "a dog", "a cat"], ["y", "a house", "the cat"], ["x", "the dog", "a cat"]]
    path = write("a.tsv", header, *("\t".join(row[: header.count("\t") + 1]) for row in rows))
    with pytest.raises(UserError, match=f"its column names do not show which one has {message}\\.\nName it, .*label="):
        load_task("t", **parts(path))
    tweets = load_task("t", **parts(write("b.tsv", "label\ttweet", "x\ta dog", "y\ta cat")), text="tweet")
    assert tweets.labels == ("x", "y")


def test_a_class_called_as_a_column_is_no_header(write):
    data = load_task("t", **parts(write("a.tsv", "question\twhat is it", "answer\ta dog", "question\twho is it")))
    assert data.labels == ("question", "answer")


def test_questions_with_choices(write):
    row = {"dialogue": ["M: a dog?", "W: a cat."], "question": "What?", "choices": ["a dog", "a cat"], "answer": 1}
    data = load_task("t", **parts(write("a.jsonl", json.dumps(row), json.dumps({**row, "answer": 0}))))
    first = data.train[0]
    assert (data.shape, first.text, first.label) == ("choice", "M: a dog? W: a cat.", "1")
    assert (first.question, first.choices) == ("What?", ["a dog", "a cat"])
    assert make_task(data) == Choice(task="t")
    with pytest.raises(UserError, match=r"example 2, has \"2\" for 2 choices"):
        load_task("t", **parts(write("c.jsonl", json.dumps(row), json.dumps({**row, "answer": 2}))))
    with pytest.raises(UserError, match=r"expected a list of texts. Got \"a dog\""):
        load_task("t", **parts(write("b.jsonl", json.dumps({**row, "choices": "a dog"}))))


def test_corpora_frames_and_datasets_in_memory(corpus_of):
    columns = {"sentence": ["a dog", "a cat"], "label": [1, 0]}
    dataset = Dataset.from_dict(columns).cast_column("label", ClassLabel(names=["no", "yes"]))
    corpus = corpus_of(text=["a dog", "a cat"], label=["yes", "no"])
    data = load_task("t", train=dataset, dev=corpus, test=corpus)
    assert data.labels == ("yes", "no")
    assert load_task("t", **parts(pd.DataFrame(columns))).labels == ("1", "0")


def test_numbers_are_a_regression_where_they_cannot_be_classes(corpus_of, notes):
    def shape(labels):
        corpus = corpus_of(text=[f"text {place}" for place in range(len(labels))], label=labels)
        return load_task("t", **parts(corpus)).shape

    assert shape(["1", "2", "3"]) == "classification"
    assert shape([str(value) for value in range(20)]) == "classification"
    assert not notes
    assert shape(["1", "2.5", "3"]) == "regression"
    assert notes == [
        't: its labels are numbers, so it is treated as a regression (shape="classification" for classes).'
    ]
    assert shape([str(value) for value in range(21)]) == "regression"
    assert shape(["1.5", "2", "x"]) == "classification"


def test_missing_parts_are_split_off_by_content_and_told(texts, corpus_of, notes):
    drawn = [f"{text} number {place} of all {place * 7} sentences" for place, text in enumerate(texts(400))]
    labels = ["x" if len(text) % 2 else "y" for text in drawn]
    data = load_task("t", train=corpus_of(text=drawn, label=labels))
    sizes = [len(part) for part in (data.train, data.dev, data.test)]
    assert sizes == pytest.approx([280, 40, 80], abs=25)
    assert sum(sizes) + sum(data.left_out.values()) == 400
    assert notes == [
        f"t: dev and test split off training by the content of the texts (near-duplicates): train {sizes[0]}, "
        f"dev {sizes[1]}, test {sizes[2]}."
    ]
    order = np.random.default_rng(0).permutation(400)
    again = load_task("t", train=corpus_of(text=[drawn[i] for i in order], label=[labels[i] for i in order]))
    assert {s.text for s in again.test} == {s.text for s in data.test}
    given = load_task("t", train=data.train, test=data.test)
    assert len(given.test) == sizes[2]
    assert len(given.dev) + len(given.train) + sum(given.left_out.values()) == sizes[0]


def test_rare_labels_of_parts_that_are_split_off_are_left_out(texts, corpus_of):
    drawn = [f"{text} number {place} of all {place * 7} sentences" for place, text in enumerate(texts(60))]
    labels = [f"rare {place}" if place % 3 == 0 else "xy"[place % 2] for place in range(60)]
    data = load_task("t", train=corpus_of(text=drawn, label=labels))
    missed = {part: data.left_out.get(f"{part}: a label that training lacks", 0) for part in ("dev", "test")}
    assert missed["test"] > 0
    sizes = len(data.train), len(data.dev), len(data.test)
    assert sum(sizes) + sum(data.left_out.values()) == 60
    assert {s.label for s in data.test} <= {s.label for s in data.train} == set(data.labels)


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        ((["x", "y"], ["x", "z"]), {}, r"1 of its labels do not: \"z\"; those of training are \"x\", \"y\""),
        ((["x", "x"], ["x", "x"]), {}, r"at least two classes. part has 1: \"x\""),
        ((["x", "y"], ["x", "y"]), {"labels": ["x", "y", "z"]}, r"Every class must have an example.*has none of \"z\""),
        ((["x", "y"], ["x", "y"]), {"labels": ["x"]}, r"1 of its labels do not: \"y\""),
        ((["1", "2.5"], ["1", "x"]), {"shape": "regression"}, r"example 2, has \"x\""),
        ((["x", "y"], [None, None]), {}, r"No example of part has a label"),
        (
            (["x", "y"], ["x", "y"]),
            {"shape": "tagging"},
            r"tagging needs words. part has label, text.\nTags need words",
        ),
        ((["x", "y"], ["x", "y"]), {"shape": "choice"}, r"choice needs text, question, choices, label"),
        ((["x", "y"], ["x", "y"]), {"kind": "label"}, r"A task has no column kind"),
    ],
)
def test_what_is_wrong_is_said(labels, more, message, corpus_of):
    train, test = (corpus_of("part", text=["a dog", "a cat"], label=each) for each in labels)
    with pytest.raises(UserError, match=message):
        load_task("t", train=train, dev=train, test=test, **more)


def test_a_shape_that_there_is_not():
    corpus = Corpus.from_sentences(["a dog"])
    load = inspect.unwrap(load_task)  # in tests beartype would speak first
    with pytest.raises(UserError, match=r"shape must be one of classification.* Got \"song\""):
        load("t", shape="song", train=corpus, dev=corpus, test=corpus)


def test_what_is_wrong_with_tags_is_said(tagged):
    words = [["a", "dog"], ["go"]]
    train = tagged(words, [["O", "B-X"], ["O"]])
    with pytest.raises(
        UserError, match=r"(?s)Every label of other must .* 1 of its labels do not: \"B-Y\".*another column \(tags=\)"
    ):
        load_task("t", train=train, dev=train, test=tagged(words, [["O", "B-Y"], ["O"]], name="other"))
    with pytest.raises(UserError, match=r"at least two tags. tagged has 1"):
        load_task("t", **parts(tagged(words, [["O", "O"], ["O"]])))
    with pytest.raises(UserError, match=r"A tag must not contain white space. Got \"B X\""):
        load_task("t", **parts(tagged(words, [["O", "B X"], ["O"]])))
    with pytest.raises(UserError, match=r"Every tag must have an example.*has none of \"I-X\""):
        load_task("t", **parts(train), labels=["O", "B-X", "I-X"])
    with pytest.raises(UserError, match=r"cannot be inferred from the columns of"):
        load_task("t", **parts(train.__class__.from_sentences(["a dog", "a cat"])))


@pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not here")
@pytest.mark.parametrize(
    ("folder", "kind", "more", "shape", "classes", "sizes"),
    [
        ("classify/acl-arc", "tsv.gz", {}, "classification", 6, (1688, 114, 139)),
        ("classify/hoc", "tsv.gz", {"label": 2, "text": 3, "multi": True}, "classification", 10, (14005, 1768, 1691)),
        ("pairs/mrpc", "tsv.gz", {}, "classification", 2, (3576, 500, 1725)),
        ("pairs/sick", "tsv.gz", {}, "classification", 3, (4500, 500, 4927)),
        ("pairs/sick", "tsv.gz", {"shape": "regression"}, "regression", 0, (4500, 500, 4927)),
        ("ner/wnut17", "tsv.gz", {}, "tagging", 13, (3394, 1009, 1287)),
        ("qa/dream", "jsonl.gz", {}, "choice", 0, (6116, 2040, 2041)),
    ],
)
def test_real_files(folder, kind, more, shape, classes, sizes):
    files = {part: DATA / folder / f"{part}.{kind}" for part in ("train", "dev", "test")}
    data = load_task(folder, **files, **more)
    assert (data.shape, len(data.labels)) == (shape, classes)
    assert (len(data.train), len(data.dev), len(data.test)) == sizes
    assert make_task(data).shape == shape


def test_the_tags_that_were_named_are_those_that_are_trained(tmp_path):
    """Columns with the same tags, and one whose first sentence lacks a tag, are told apart by what was named."""
    lines = ("a O O B-X", "Dog O B-X I-X", "", "the B-X O O", "cat I-X B-X B-X", "sat O I-X O")
    (tmp_path / "layers.conll").write_text("\n".join(lines) + "\n")
    for column in ("tag_1", "tag_2", "tag"):
        data = load_task("t", **parts(tmp_path / "layers.conll"), tags=column)
        assert make_task(data).column == column
    assert make_task(load_task("t", **parts(tmp_path / "layers.conll"))).column == "tag"
    (tmp_path / "chunks.tagged").write_text("a\tO\tO\nDog\tO\tB-X\n\nthe\tB-Y\tO\ncat\tO\tO\n")
    chunks = Corpus.from_tagged(tmp_path / "chunks.tagged", ("chunk", "ner"))
    assert make_task(load_task("t", **parts(chunks), tags="ner")).column == "ner"
