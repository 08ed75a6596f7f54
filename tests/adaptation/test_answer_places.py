import pytest
from adaptation.questions import asked

from infoflow.adaptation import askable_spans
from infoflow.adaptation._answer_places import first_place, place_of
from infoflow.corpus import Corpus
from infoflow.foundation import UserError, make_display, use_display

TEXT = "Red cats, red dogs and\nRED  cats."


@pytest.mark.parametrize(
    ("answer", "start", "place"),
    [
        ("red", 10, (10, 13)),
        ("Red", 9, (10, 13)),  # not there: the nearest, whatever its case
        ("Red", 0, (0, 3)),
        ("red cats", 20, (23, 32)),
        ("  Red ", 0, (0, 3)),
        (" red", 9, (10, 13)),
        ("cats.", 0, (28, 33)),
        ("birds", 0, None),
        (" ", 0, None),
        ("re. cats", 0, None),  # no pattern, but text
    ],
)
def test_an_answer_is_where_it_says_or_nearby(answer, start, place):
    assert place_of(TEXT, answer, start) == place


def _corpus(*rows: tuple[str, list[str], list[int]]) -> Corpus:
    return asked(*((text, "Which?", answers, starts) for text, answers, starts in rows))


def test_the_first_answer_that_is_there_counts():
    corpus = _corpus((TEXT, ["birds", "dogs"], [0, 14]), (TEXT, [], []), (TEXT, ["birds"], [3]))
    assert [first_place(one) for one in corpus] == [(14, 18), None, None]


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
    assert "of 1 of 4 questions the answer does not stand at the character that is given" in capsys.readouterr().err


def test_a_corpus_of_which_no_answer_is_there_is_refused():
    with pytest.raises(UserError, match=r"None of 2 does, such as 'birds'"):
        askable_spans(_corpus((TEXT, ["birds"], [0]), (TEXT, ["mice"], [0])))
