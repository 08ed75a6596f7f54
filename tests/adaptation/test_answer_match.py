import pytest
from adaptation.squad_script import normalise, script
from hypothesis import given
from hypothesis import strategies as st

from infoflow.objectives import normalise_answer
from infoflow.subjects.adaptation.measures._answer_match import answer_f1, exact_match

words = st.lists(
    st.sampled_from(["The", "a", "an", "cat", "Cat's", "U.S.", "—", "über", "theory", "!", "42"]), max_size=6
)
texts = words.map(" ".join)


@given(said=texts, answers=st.lists(texts, max_size=3))
def test_scores_are_those_of_the_publishedscript(said, answers):
    exact, f1 = script(said, answers)
    assert exact_match(said, answers) == exact
    assert answer_f1(said, answers) == pytest.approx(f1, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat's (tail)!", "cats tail"),
        ("theory of a-an", "theory of aan"),
        ("THE THE", ""),
        ("an £20,133 “quote”", "£20133 quote"),
    ],
)
def test_normalisation_of_known_cases(text, normal):
    assert normalise_answer(text) == normal == normalise(text)


def test_hand_made_scores():
    assert answer_f1("in the red house", ["red house", "garden"]) == pytest.approx(0.8)
    assert exact_match("Red House.", ["a red house"]) == 1.0
    assert (exact_match("", []), answer_f1("", []), answer_f1("cat", [])) == (1.0, 1.0, 0.0)
    assert answer_f1("", ["cat"]) == 0.0
    assert exact_match("the", ["cat", "a"]) == 0.0  # an answer of nothing but an article is none
