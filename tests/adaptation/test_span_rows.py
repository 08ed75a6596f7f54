import collections
from pathlib import Path

import numpy as np
import pytest
from adaptation.questions import asked, own_tokenizer, town_questions
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from infoflow.adaptation import SpanExtraction
from infoflow.corpus import Corpus
from infoflow.foundation import UserError
from infoflow.models import normalise_answer

SQUAD = Path(__file__).parents[3] / "shared" / "data" / "qa" / "squad-excerpt"
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh"), "?")


def span_rows(corpus, tokenizer, max_length, doc_stride, query_length):
    """The windows that a task makes of a corpus."""
    task = SpanExtraction(task="spans", doc_stride=doc_stride, query_length=query_length)
    return task.rows(corpus, tokenizer, max_length)


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A BERT tokenizer with a token for each letter a–h and ?."""
    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(PIECES))
    return BertTokenizerFast(vocab=str(path), do_lower_case=True)


def _published_windows(num_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Start and length of BERT's `doc_spans`."""
    spans, start = [], 0
    while start < num_tokens:
        length = min(num_tokens - start, room)
        spans.append((start, length))
        if start + length == num_tokens:
            break
        start += min(length, stride)
    return spans


def _published_max_context(spans: list[tuple[int, int]], current: int, position: int) -> bool:
    """BERT's `_check_is_max_context`."""
    best_score, best_index = None, None
    for index, (start, length) in enumerate(spans):
        end = start + length - 1
        if position < start or position > end:
            continue
        score = min(position - start, end - position) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best_index = score, index
    return current == best_index


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_windows_are_those_of_the_published_recipe(letters, data):
    num_tokens = data.draw(st.integers(1, 60))
    max_length, stride = data.draw(st.integers(14, 40)), data.draw(st.integers(1, 30))
    text = " ".join(np.resize(list("abcdefgh"), num_tokens))
    corpus = asked((text, "a b?", ["a"], [0]))
    rows = span_rows(corpus, letters, max_length, stride, 64)
    room = max_length - 3 - 3
    spans = _published_windows(num_tokens, room, min(stride, room // 2))
    passage = letters(text, add_special_tokens=False)["input_ids"]
    cls, sep = letters.cls_token_id, letters.sep_token_id
    question = letters("a b?", add_special_tokens=False)["input_ids"]
    assert len(rows.windows) == len(spans)
    for index, (window, (start, length)) in enumerate(zip(rows.windows, spans, strict=True)):
        part = passage[start : start + length]
        assert window.input_ids.tolist() == [cls, *question, sep, *part, sep]
        assert window.segments.tolist() == [0] * (len(question) + 2) + [1] * (length + 1)
        best = [_published_max_context(spans, index, start + place) for place in range(length)]
        assert window.best.tolist() == [False] * (len(question) + 2) + best + [False]
        assert [text[a:b] for a, b in window.offsets if a >= 0] == [text[2 * (start + i)] for i in range(length)]
    seen = [start + place for start, length in spans for place in range(length)]
    assert set(seen) == set(range(num_tokens))  # every token stands in a window


def test_a_window_with_the_answer_marks_it_and_others_mark_nothing(letters):
    text = "a b c d e f g h a b c d e f g h a b"
    rows = span_rows(asked((text, "a?", ["g h a"], [12])), letters, 14, 128, 64)
    marked = []
    for window in rows.windows:
        holds_answer = ((window.offsets[:, 0] >= 12) & (window.offsets[:, 1] <= 17)).sum() == 3
        assert holds_answer == (window.start != window.null)
        marked += [window.offsets[window.start : window.end + 1].tolist()] if holds_answer else []
        assert holds_answer or (window.start, window.end) == (0, 0)
    assert marked == [[[12, 13], [14, 15], [16, 17]]] * len(marked)
    assert 0 < len(marked) < len(rows.windows)


def test_the_question_is_cut_and_text_holds_no_control_token(letters):
    rows = span_rows(asked(("a [SEP] b c", "a b c d e f? [CLS]", ["b"], [8])), letters, 40, 128, 4)
    (window,) = rows.windows
    ids = window.input_ids.tolist()
    assert letters.convert_ids_to_tokens(ids[:6]) == ["[CLS]", "a", "b", "c", "d", "[SEP]"]
    assert ids.count(letters.sep_token_id) == 2
    assert ids.count(letters.cls_token_id) == 1
    assert letters.convert_ids_to_tokens([ids[window.start]]) == ["b"]


def test_rows_speak_of_their_windows():
    corpus = town_questions(6)
    tokenizer = own_tokenizer(corpus)
    rows = span_rows(corpus, tokenizer, 24, 8, 64)
    assert len(rows.lengths) > len(corpus)
    assert rows.sentence_ids.tolist() == corpus.ids[rows.examples].tolist()
    assert np.unique(rows.examples).tolist() == list(range(len(corpus)))
    for index, window in enumerate(rows.windows):
        example = rows.example(index)
        assert rows.lengths[index] == len(rows.row(index)) == len(example.labels["token_type_ids"]) <= 24
        assert (example.labels["start"], example.labels["end"]) == (window.start, window.end)
    again = span_rows(corpus, tokenizer, 24, 8, 64)
    assert again.digest == rows.digest
    moved = asked(*((one.text, one.question, ["lives"], [one.text.index("lives")]) for one in corpus))
    assert span_rows(moved, tokenizer, 24, 8, 64).digest != rows.digest


def test_what_cannot_be_marked_asks_for_nothing_and_is_counted(letters):
    text = " ".join("abcdefgh" * 4)
    rows = span_rows(
        asked((text, "a?", ["x"], [0]), (text, "b?", [text[:60]], [0]), (text, "c?", ["c"], [4]), (text, "d?", [], [])),
        letters, 16, 128, 64,
    )  # fmt: skip
    assert rows.left_out == {"answer not in the passage": 1, "answer longer than a window": 1}
    for window in rows.windows:
        assert (window.start == -1) == (window.example in (0, 1))
    nulls = [window for window in rows.windows if window.example == 3]
    assert {(window.start, window.end) for window in nulls} == {(0, 0)}


def test_an_answer_that_the_tokenizer_drops_is_counted(letters):
    # Control characters are no token of BERT.
    rows = span_rows(asked(("a \u200b b", "a?", ["\u200b"], [2]), ("a b", "a?", ["b"], [2])), letters, 16, 9, 9)
    assert rows.left_out == {"answer that no token covers": 1}


def test_a_passage_of_one_window_is_all_context():
    corpus = asked(("Ann lives in Oslo.", "Where?", [], []))
    (window,) = span_rows(corpus, own_tokenizer(town_questions(1, facts=6)), 64, 128, 64).windows
    assert window.best.tolist() == (window.offsets[:, 0] >= 0).tolist()


def test_a_corpus_without_any_marked_answer_is_refused(letters):
    with pytest.raises(UserError, match=r"none of 1 questions has one \(answer that no token covers\)"):
        span_rows(asked(("a \u200b b", "a?", ["\u200b"], [2])), letters, 16, 9, 9)


def test_a_window_without_room_is_refused(letters):
    with pytest.raises(UserError, match=r"in addition to a question of 9 tokens.* Got max_length 16"):
        span_rows(asked(("a b", "a b c d e f", ["b"], [2])), letters, 16, 128, 64)


def test_a_corpus_without_questions_is_refused(letters):
    with pytest.raises(UserError, match="has no column question, answers"):
        span_rows(Corpus.from_sentences(["a b"]), letters, 16, 128, 64)


def test_gold_spans_of_real_questions_read_as_their_answers():
    """Of every answerable question some window's marked span reads as the answer."""
    if not (SQUAD / "train.json.gz").exists():
        pytest.skip("needs the excerpt of SQuAD in shared/data/qa")
    corpus = Corpus.from_squad(SQUAD / "train.json.gz").select(np.arange(0, 3600, 6))
    tokenizer = own_tokenizer(corpus, size=3000)
    rows = span_rows(corpus, tokenizer, 96, 128, 64)
    found = collections.defaultdict(set)
    for window in rows.windows:
        if window.start > 0:
            sentence = corpus[window.example]
            span = sentence.text[window.offsets[window.start, 0] : window.offsets[window.end, 1]]
            found[window.example].add(normalise_answer(span))
    assert not rows.left_out
    right = [normalise_answer(one.answers[0]) in found[row] for row, one in enumerate(corpus)]
    whole = [_is_whole(one.text, one.answers[0], one.answer_starts[0]) for one in corpus]
    wrong = [
        row for row, (is_right, is_whole) in enumerate(zip(right, whole, strict=True)) if is_whole and not is_right
    ]
    assert wrong == []  # only a span that ends within a word can end within a token
    assert 0 < rows.num_within == right.count(False) <= whole.count(False)


def _is_whole(text: str, answer: str, start: int) -> bool:
    """Whether an answer begins and ends where words do."""
    around = text[max(start - 1, 0) : start], text[start + len(answer) : start + len(answer) + 1]
    return not any(
        outside.isalnum() and inside.isalnum() for outside, inside in zip(around, (answer[0], answer[-1]), strict=True)
    )
