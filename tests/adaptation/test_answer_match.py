import numpy as np
import pytest
from adaptation.questions import asked
from adaptation.squad_script import normalise, script
from hypothesis import given, settings
from hypothesis import strategies as st

from infoflow.adaptation import Predictions, SpanExtraction
from infoflow.models import normalise_answer

words = st.lists(
    st.sampled_from(["The", "a", "an", "cat", "Cat's", "U.S.", "—", "über", "theory", "!", "42"]), max_size=6
)
texts = words.map(" ".join)


def scores(*answered: tuple[str, list[str]]) -> tuple[float, float]:
    """Mean exact match and F1 of what was said to each question, with its right answers."""
    corpus = asked(*((" ".join(["-", *right]), "?", right, [0] * len(right)) for _, right in answered))
    said = tuple(one for one, _ in answered)
    predictions = Predictions(said=said, wanted=said, values=np.ones(len(said)))
    found = {one.metric: one.row["value"] for one in SpanExtraction(task="match").scores(predictions, corpus, corpus)}
    return found["exact_match"], found["f1"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(texts, st.lists(texts.filter(bool), max_size=3)), min_size=1, max_size=4))
def test_scores_are_those_of_the_published_script(answered):
    assert scores(*answered) == pytest.approx(np.mean([script(*one) for one in answered], axis=0), abs=1e-12)


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
    assert scores(("in the red house", ["red house", "garden"])) == pytest.approx((0, 0.8))
    assert scores(("Red House.", ["a red house"])) == (1, 1)
    assert scores(("", [])) == (1, 1)
    assert scores(("cat", [])) == scores(("", ["cat"])) == (0, 0)
    assert scores(("the", ["cat", "a"])) == (0, 0)  # an answer of nothing but an article is none
