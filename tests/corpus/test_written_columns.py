"""Columns of answers, and of texts that would be right to write."""

import json

import pandas as pd
import pytest
from datasets import Dataset

from infoflow.corpus import Corpus, load_corpus
from infoflow.foundation import SilentDisplay, UserError, use_display

ROWS = [
    {"facts": [["Oslo", "in", "Norway"]], "said": ["It is in Norway.", "Norway has it."], "more": []},
    {"facts": [["a", "b", "c"], ["d", "e", "f"]], "said": ["One.", "Two.", "Two.", "One."], "more": ["Two.", "Three."]},
]


def _readers(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return {
        "table": lambda **columns: Corpus.from_table(path, **columns),
        "frame": lambda **columns: Corpus.from_frame(pd.DataFrame(rows), **columns),
        "dataset": lambda **columns: Corpus.from_dataset(Dataset.from_list(rows), **columns),
    }


@pytest.mark.parametrize("reader", ["table", "frame", "dataset"])
def test_a_list_of_texts_is_the_translation_and_its_references(tmp_path, reader):
    corpus = _readers(tmp_path / "rows.jsonl", ROWS)[reader](text="facts", translation="said", references="said")
    assert [one.text for one in corpus] == ["Oslo | in | Norway", "a | b | c && d | e | f"]
    assert [one.translation for one in corpus] == ["It is in Norway.", "One."]
    assert [one.references for one in corpus] == [["Norway has it."], ["Two."]]


@pytest.mark.parametrize("reader", ["table", "frame", "dataset"])
def test_references_may_have_their_own_column(tmp_path, reader):
    rows = [
        {"text": ["One.", " ", "Two."], "said": "A.", "more": ["A.", "B.", "B."]},
        {"text": ["C."], "said": "D.", "more": []},
    ]
    corpus = _readers(tmp_path / "rows.jsonl", rows)[reader](text="text", translation="said", references="more")
    assert [(one.text, one.references) for one in corpus] == [("One. Two.", ["B."]), ("C.", [])]


def test_a_part_without_references_is_read_with_a_note(tmp_path):
    class Notes(SilentDisplay):
        said = ""

        def note(self, text):
            Notes.said += text

    path = tmp_path / "rows.jsonl"
    path.write_text('{"body": "x y", "subject": "z"}\n')
    with use_display(Notes()):
        corpus = Corpus.from_table(path, text="body", translation="subject", references="others")
    assert corpus[0].references == []
    assert "has no column others: each example has a single reference" in Notes.said


@pytest.mark.parametrize("reader", ["table", "frame", "dataset"])
def test_answers_and_where_they_begin(tmp_path, reader):
    rows = [
        {"context": "Oslo lies in Norway.", "question": "Where?", "answers": {"text": ["Norway"], "start": [13]}},
        {"context": "Oslo lies in Norway.", "question": "When?", "answers": {"text": [], "start": []}},
    ]
    columns = {"text": "context", "question": "question", "answers": "answers.text", "answer_starts": "answers.start"}
    if reader == "frame":  # a frame has no column inside another
        rows = [row | {"said": row["answers"]["text"], "start": row["answers"]["start"]} for row in rows]
        columns |= {"answers": "said", "answer_starts": "start"}
    corpus = _readers(tmp_path / "rows.jsonl", rows)[reader](**columns)
    assert [(one.answers, one.answer_starts) for one in corpus] == [(["Norway"], [13]), ([], [])]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answers": ["Norway"], "start": []}, "Got 1 answers and 0 offsets"),
        ({"answers": ["Norway"], "start": ["x"]}, "expected character offsets from 0"),
        ({"answers": ["Norway"], "start": [-1]}, "expected character offsets from 0"),
        ({"answers": [3], "start": [1]}, "holds 3, not text"),
    ],
)
def test_answers_that_are_none_are_told(tmp_path, row, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "Oslo lies in Norway.", "question": "Where?", **row}))
    with pytest.raises(UserError, match=message):
        load_corpus(
            path, text_column="text", question_column="question", answers_column="answers", answer_starts_column="start"
        )
