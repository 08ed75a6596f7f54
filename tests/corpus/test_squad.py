import gzip
import json

import pytest

from infoflow.corpus import Corpus
from infoflow.foundation import UserError

PASSAGE = "  Oslo lies in Norway. Its ferries are red."


def _squad(*qas: dict, context: str = PASSAGE) -> str:
    return json.dumps({"version": "x", "data": [{"title": "", "paragraphs": [{"context": context, "qas": list(qas)}]}]})


def _asked(*answers: tuple[str, int], question: str = "Where?", **more: object) -> dict:
    return {"id": "1", "question": question, "answers": [{"text": t, "answer_start": s} for t, s in answers], **more}


@pytest.fixture
def read(tmp_path):
    def read(text: str, suffix: str = ".json") -> Corpus:
        path = tmp_path / f"questions{suffix}"
        path.write_bytes(gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode())
        return Corpus.from_squad(path)

    return read


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_row_is_a_question_and_the_passage_is_as_it_was(read, suffix):
    corpus = read(_squad(_asked(("Norway", 15)), _asked(("red", 39), question=" What colour? ")), suffix)
    assert [one.question for one in corpus] == ["Where?", "What colour?"]
    assert [one.text for one in corpus] == [PASSAGE] * 2
    for one in corpus:
        assert PASSAGE[one.answer_starts[0] :].startswith(one.answers[0])


def test_an_impossible_question_has_no_answer_whatever_is_plausible(read):
    plausible = _asked(("Oslo", 2), is_impossible=True)
    corpus = read(_squad(plausible, _asked(is_impossible=True), _asked(("Oslo", 2), ("Oslo", 2), is_impossible=False)))
    assert [one.answers for one in corpus] == [[], [], ["Oslo"]]
    assert [one.answer_starts for one in corpus] == [[], [], [2]]


def test_blank_questions_and_answers_are_left_out(read):
    corpus = read(_squad(_asked(("Oslo", 2), question=" "), _asked((" ", 2)), _asked(("Oslo", 2), (" ", 1))))
    assert [one.answers for one in corpus] == [["Oslo"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected SQuAD's format"),
        ('{"data": [{"paragraphs": 3}]}', "no list paragraphs"),
        (_squad({"question": "Where?"}), "expected answers or is_impossible"),
        (_squad({"question": "Where?", "answers": []}), "expected answers"),
        (_squad({"question": 3, "answers": []}), "holds 3, not text"),
        (_squad({"question": "Where?", "answers": [{"text": "Oslo"}]}), "an answer is"),
        (_squad({"question": "Where?", "answers": [{"text": "Oslo", "answer_start": -1}]}), "an answer is"),
        (_squad("Where?"), "expected an object"),
        ('{"data": ', "not JSON"),
    ],
)
def test_what_is_not_of_this_format_is_told(read, text, message):
    with pytest.raises(UserError, match=message):
        read(text)


@pytest.fixture
def word_answers(tmp_path):
    def read(questions: str) -> Corpus:
        (tmp_path / "sentences.tsv").write_text("a\tThe red cat sleeps .\nb\tDogs run .\n")
        (tmp_path / "questions.tsv").write_text(questions)
        return Corpus.from_word_answers(tmp_path / "sentences.tsv", tmp_path / "questions.tsv")

    return read


def test_ranges_of_words_become_spans(word_answers):
    corpus = word_answers("1\tWho runs?\t0-0 0-0 0-1\n0\tWho sleeps?\t1-2\n")
    assert [(one.text, one.answers, one.answer_starts) for one in corpus] == [
        ("Dogs run .", ["Dogs", "Dogs run"], [0, 0]),
        ("The red cat sleeps .", ["red cat"], [4]),
    ]


@pytest.mark.parametrize(
    "line", ["2\tWho?\t0-0", "x\tWho?\t0-0", "0\tWho?\t3-5", "0\tWho?\t2-1", "0\tWho?\t2", "0\tWho?"]
)
def test_a_range_that_is_not_there_is_told(word_answers, line):
    with pytest.raises(UserError, match="line 1: "):
        word_answers(line + "\n")
