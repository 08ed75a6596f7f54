import pytest
from adaptation.questions import asked

from infoflow.adaptation import askable_spans
from infoflow.corpus import Corpus
from infoflow.foundation import UserError, make_display, use_display

TEXT = "Red cats, red dogs and\nRED  cats."


def _corpus(*rows: tuple[str, list[str], list[int]]) -> Corpus:
    return asked(*((text, "Which?", answers, starts) for text, answers, starts in rows))


def test_questions_that_cannot_be_asked_are_counted():
    corpus = _corpus((TEXT, ["birds"], [0]), (TEXT, [], []), (TEXT, ["dogs"], [0]))
    kept, left_out = askable_spans(corpus)
    assert [one.answers for one in kept] == [[], ["dogs"]]
    assert left_out == {"answer not in the passage": 1}
    whole, nothing = askable_spans(kept)
    assert whole is kept
    assert nothing == {}


def test_answers_that_stand_elsewhere_are_told(capsys):
    moved = _corpus((TEXT, ["dogs"], [3]), (TEXT, [" dogs"], [13]), (TEXT, ["birds", "dogs"], [0, 14]), (TEXT, [], []))
    with use_display(make_display("plain")):
        kept, left_out = askable_spans(moved)
    assert (kept is moved, left_out) == (True, {})
    assert "in 1 of 4 questions the answer is not at the stated character" in capsys.readouterr().err


def test_a_corpus_of_which_no_answer_is_there_is_refused():
    with pytest.raises(UserError, match=r"None of 2 does, such as 'birds'"):
        askable_spans(_corpus((TEXT, ["birds"], [0]), (TEXT, ["mice"], [0])))
