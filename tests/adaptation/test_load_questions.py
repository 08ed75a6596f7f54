"""`load_task` of questions with answers in passages, and of texts to write."""

import json

import pandas as pd
import pytest
from datasets import Dataset

from infoflow.adaptation import Generation, SpanExtraction, load_task, make_task
from infoflow.corpus import Corpus
from infoflow.foundation import UserError


def _squad(path, answers: list[tuple[str, int]]):
    qas = [
        {"id": str(row), "question": f"Where {row}?", "answers": [{"text": text, "answer_start": start}]}
        for row, (text, start) in enumerate(answers)
    ]
    paragraphs = [{"context": "Oslo lies in Norway.", "qas": qas}]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}))
    return path


def test_squad_is_known_by_its_layout(tmp_path):
    train = _squad(tmp_path / "train.json", [("Norway", 13), ("Sweden", 0), ("Oslo", 4)])
    test = _squad(tmp_path / "test.json", [("Oslo", 0)])
    data = load_task("towns", train=train, dev=test, test=test)
    assert (data.shape, data.labels) == ("span", ())
    assert data.left_out == {"train: answer not in the passage": 1}
    assert [one.answers for one in data.train] == [["Norway"], ["Oslo"]]
    task = make_task(data, doc_stride=64)
    assert isinstance(task, SpanExtraction)
    assert (task.task, task.nullable, task.doc_stride) == ("towns", False, 64)


def test_a_table_of_questions(tmp_path):
    path = tmp_path / "asked.jsonl"
    row = {"context": "Oslo lies in Norway.", "question": "Where?", "answers": ["Norway"], "answer_starts": [13]}
    path.write_text("\n".join(json.dumps(each) for each in (row, {**row, "answers": [], "answer_starts": []})))
    data = load_task("towns", train=path, dev=path, test=path, shape="span")
    assert make_task(data).nullable
    assert [one.answers for one in data.test] == [["Norway"], []]


@pytest.mark.parametrize("named", [{"shape": "generation"}, {"text": "source", "translation": "target"}])
def test_a_table_of_texts_to_write(tmp_path, named):
    path = tmp_path / "rows.jsonl"
    rows = [{"source": ["One.", "Two."], "target": ["A.", "B."]}, {"source": ["Three."], "target": ["C."]}]
    path.write_text("\n".join(map(json.dumps, rows)))
    data = load_task("numbers", train=path, dev=path, test=path, **named)
    assert data.shape == "generation"
    assert [(one.text, one.translation, one.references) for one in data.train] == [
        ("One. Two.", "A.", ["B."]),
        ("Three.", "C.", []),
    ]
    assert isinstance(make_task(data, beams=2), Generation)


def test_parallel_text_is_for_writing():
    corpus = Corpus.from_sentences([("a b", "c d"), ("e f", "g h")])
    assert load_task("pairs", train=corpus, dev=corpus, test=corpus).shape == "generation"


def test_what_a_shape_needs_is_told():
    corpus = Corpus.from_sentences(["a b", "c d"])
    with pytest.raises(UserError, match="shape span needs text, question, answers"):
        load_task("towns", train=corpus, shape="span")
    with pytest.raises(UserError, match="shape generation needs text, translation"):
        load_task("towns", train=corpus, shape="generation")


def test_passages_stay_together_where_parts_are_split(tmp_path):
    from adaptation.questions import asked

    rows = [
        (f"Town {place} lies in the land of number {place} beside river {place * 7}.", f"Which {turn}?", ["Town"], [0])
        for place in range(60)
        for turn in range(3)
    ]
    data = load_task("towns", train=asked(*rows))
    parts = [set(part.column("text")) for part in (data.train, data.dev, data.test)]
    assert all(parts)
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (("question", "passage", "answer"), {}),
        (("question", "sentence", "label"), {"shape": "classification"}),
        (("asked", "about", "is"), {"question": "asked", "text": "about", "label": "is"}),
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "tsv", "frame"])
def test_a_labelled_question_is_the_first_text_of_a_pair(tmp_path, columns, named, ending):
    rows = [("is it Oslo", "Oslo lies in Norway.", "yes"), ("is it Rome", "Oslo lies in Norway.", "no")]
    frame = pd.DataFrame(rows, columns=columns)
    path = tmp_path / f"rows.{ending}"
    if ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif ending == "tsv":
        frame.to_csv(path, sep="\t", index=False)
    source = frame if ending == "frame" else path
    data = load_task("t", train=source, dev=source, test=source, **named)
    assert data.shape == "classification"
    assert [(one.text, one.second, one.label) for one in data.train] == rows
    assert "question" not in data.train.columns


def test_labelled_questions_about_a_text_are_split_by_the_text(tmp_path):
    rows = [
        {"question": f"is {turn} true", "passage": f"Town {place} lies beside river {place * 7}.", "label": turn % 2}
        for place in range(60)
        for turn in range(2)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    data = load_task("t", train=path)
    seen = [set(part.column("second")) for part in (data.train, data.dev, data.test)]
    assert all(seen)
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]


def test_a_label_is_of_two_texts_at_most(tmp_path):
    row = {"question": "What?", "sentence1": "One.", "sentence2": "Two."}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({**row, "label": label}) for label in "ab"))
    assert [(one.text, one.second) for one in load_task("t", train=path, dev=path, test=path).train] == [
        ("One.", "Two.")
    ] * 2
    with pytest.raises(UserError, match=r"has three: question, text and second"):
        load_task("t", train=path, dev=path, test=path, question="question")
    alone = tmp_path / "alone.jsonl"
    alone.write_text("\n".join(json.dumps({"question": f"Where {label}?", "label": label}) for label in "ab"))
    assert [one.text for one in load_task("t", train=alone, dev=alone, test=alone).train] == ["Where a?", "Where b?"]


_ROW = {"context": "Oslo and Oslo.", "question": "Where?"}


@pytest.mark.parametrize("starts", ["answer_starts", "answer_start", "began"])
def test_places_of_answers_are_read_whoever_is_named(tmp_path, starts):
    """Answers that are named, without a shape: the place that the table gives counts, not the first that fits."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**_ROW, "found": ["Oslo"], starts: [9]}))
    named = {"answer_starts": starts} if starts == "began" else {}
    data = load_task("towns", train=path, dev=path, test=path, answers="found", **named)
    assert (data.shape, data.train[0].answer_starts) == ("span", [9])


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "dataset", "frame"])
def test_places_beside_nested_answers_are_read(tmp_path, kind):
    def source(answers):
        rows = [{**_ROW, "answers": answers}]
        if kind == "jsonl":
            (tmp_path / "rows.jsonl").write_text(json.dumps(rows[0]))
        elif kind == "parquet":
            Dataset.from_list(rows).to_parquet(tmp_path / "rows.parquet")
        return {"frame": pd.DataFrame(rows), "dataset": Dataset.from_list(rows)}.get(kind, tmp_path / f"rows.{kind}")

    named = {"text": "context", "answers": "answers.text"}
    train = source({"text": ["Oslo"], "answer_start": [9]})
    data = load_task("towns", train=train, dev=train, test=train, **named)
    assert (data.shape, data.train[0].answers, data.train[0].answer_starts) == ("span", ["Oslo"], [9])
    bare = source({"text": ["Oslo"], "id": ["1"]})
    assert load_task("towns", train=bare, dev=bare, test=bare, **named).train[0].answer_starts is None
